"""``python -m bench.models``: many nights, kept as they end; it goes on where it was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.models.nights import LATENCY_S, NIGHTS, Nights, figures
from bench.models.policies import POLICIES
from bench.simulator.worlds import JOURNAL, Sources, worlds


def main(
    nights: Annotated[int, typer.Option(min=2)] = NIGHTS,
    policy: Annotated[list[str] | None, typer.Option(help="All by default.")] = None,
    latency: Annotated[float, typer.Option(help="Seconds that a reply takes.")] = LATENCY_S,
    world: Annotated[str, typer.Option(help="Of bench.simulator.worlds.")] = "made-up",
    model: Annotated[list[str] | None, typer.Option(help="All by default.")] = None,
    table: Annotated[Path, typer.Option(help="A table's growing journal.")] = JOURNAL,
    kept: Annotated[Path, typer.Option(help="Where nights are kept.")] = Path("runs/models.jsonl"),
) -> None:
    """What models of every worth cost or gain, under every way to give them turns."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    known = Nights(worlds(world, Sources(table))[0], latency, kept, only=model)
    for figure in figures(known, range(nights), policy or list(POLICIES)):
        typer.echo(f"{figure.name}: {figure.value_text} {figure.goal_text} {figure.note}")


if __name__ == "__main__":
    typer.run(main)
