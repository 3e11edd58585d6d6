"""``python -m bench.cluster [--kills N] [--seed N] [--kept DIR]``."""

from pathlib import Path
from typing import Annotated

import typer

from bench.cluster.kills import KEPT, run


def main(
    kills: Annotated[int, typer.Option(help="Of a campaign's processes.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the kills.")] = 0,
    kept: Annotated[Path, typer.Option(help="Where campaign and kills are kept.")] = KEPT,
) -> None:
    """Do the kills that are not recorded yet, and print all figures."""
    for figure in run(kills, kept, seed):
        goal = f" (goal {figure.goal_text})" if figure.goal_text else ""
        print(f"{figure.name}: {figure.value_text}{goal}; {figure.note}", flush=True)


if __name__ == "__main__":
    typer.run(main)
