"""``python -m bench.searches``: what is asked of searches besides nights.

looks     what a first look at a third of a run is worth, on the table's trials
held-out  how well surrogates rank runs that they were not shown
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.figure import Figure
from bench.searches import first_looks, held_out
from bench.simulator.cpu_tiny import cpu_tiny
from bench.simulator.five_minutes import five_minutes
from bench.simulator.worlds import JOURNAL

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
TablePath = Annotated[Path, typer.Option("--table", help="A table's growing journal.")]


@app.command()
def looks(table: TablePath = JOURNAL) -> None:
    """Who is stopped at a third, by margin, and who of them would have ended better."""
    for figure in first_looks.run(table):
        _print(figure)


@app.command("held-out")
def ranks(
    table: TablePath = JOURNAL,
    published: Annotated[Path | None, typer.Option(help="A checkout of published runs.")] = None,
) -> None:
    """Rank correlations within the better third."""
    for figure in held_out.run(cpu_tiny(table), 0.03):
        _print(figure)
    if published is not None:
        for figure in held_out.run(five_minutes(published), 0.0005):
            _print(figure)


def _print(figure: Figure) -> None:
    typer.echo(f"{figure.name}: {figure.value_text} ({figure.note})")


if __name__ == "__main__":
    app()
