"""``python -m bench.cluster [--lanes N …] [--turns N] [--kills N] [--seed N] [--kept DIR]``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cluster.figures import KEPT, Size, run

SIZE = Size()


def main(
    lanes: Annotated[list[int] | None, typer.Option(help="Lanes to keep busy; 0: none.")] = None,
    turns: Annotated[int, typer.Option(help="Sleeping trials a lane.")] = SIZE.turns,
    kills: Annotated[int, typer.Option(help="Of a campaign's processes; 0: none.")] = SIZE.kills,
    seed: Annotated[int, typer.Option(help="Of the kills.")] = SIZE.seed,
    kept: Annotated[Path, typer.Option(help="Where campaign and kills are kept.")] = KEPT,
) -> None:
    """Measure what is not kept yet, and print all."""
    some = tuple(many for many in lanes or SIZE.lanes if many)
    for figure in run(Size(some, turns, kills, seed), kept.resolve()):
        goal = f" (goal {figure.goal_text})" if figure.goal_text else ""
        print(f"{figure.name}: {figure.value_text}{goal}; {figure.note}", flush=True)


if __name__ == "__main__":
    typer.run(main)
