"""``python -m bench.lanes [--rounds N] [--iterations N] [--nights N] [--kept FILE]``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.lanes.figures import KEPT, Size, run

SIZE = Size()


def main(
    rounds: Annotated[int, typer.Option(min=2, help="Sleeping trials a lane.")] = SIZE.rounds,
    iterations: Annotated[
        int, typer.Option(help="Of each real campaign; 0: none.")
    ] = SIZE.iterations,
    nights: Annotated[
        int, typer.Option(help="Simulated nights for each number of lanes; 0: none.")
    ] = SIZE.nights,
    night_iterations: Annotated[int, typer.Option(help="Of a night.")] = SIZE.night_iterations,
    kept: Annotated[Path, typer.Option(help="Where measurements are kept.")] = KEPT,
) -> None:
    """Measure what is not kept yet, and print all."""
    for figure in run(Size(rounds, iterations, nights, night_iterations), kept):
        goal = f" (goal {figure.goal_text})" if figure.goal_text else ""
        print(f"{figure.name}: {figure.value_text}{goal}; {figure.note}", flush=True)


if __name__ == "__main__":
    typer.run(main)
