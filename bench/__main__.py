"""Measure the figures of the README and bench/RESULTS.md (``python -m bench``, ``make bench``).

``--nanogpt DIR`` points to a checkout of karpathy/nanoGPT to race against; ``--write`` appends the
figures, with date and machine, to bench/RESULTS.md. On a GPU run ``python -m bench.gpu`` instead.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from agent.search.campaign_start import hardware, versions
from bench import (
    confirm_honesty,
    confirm_interim,
    growth,
    judge_honesty,
    judge_luck,
    loop_overhead,
    night_power,
    own_script,
    startup,
    trainer_speed,
    trial_overhead,
    verify_power,
)
from bench.cluster import kills
from bench.figure import MARKDOWN_HEAD, Figure, markdown_rows
from bench.search import quality

RESULTS = Path(__file__).with_name("RESULTS.md")


def main(
    only: Annotated[list[str] | None, typer.Option(help="Parts to run; all by default.")] = None,
    nanogpt: Annotated[Path | None, typer.Option(help="A checkout of nanoGPT.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Append to bench/RESULTS.md.")] = False,
) -> None:
    """Measure the figures, print them, and append them to the results with --write."""
    parts: dict[str, Callable[[], list[Figure]]] = {
        "startup": startup.run,
        "growth": growth.run,
        "loop": loop_overhead.run,
        "trial": trial_overhead.run,
        "own": own_script.run,
        "trainer": lambda: trainer_speed.run(nanogpt),
        "judge": judge_honesty.run,
        "luck": judge_luck.run,
        "confirm": lambda: [*confirm_honesty.run(), *confirm_interim.run()],
        "power": night_power.run,
        "search": quality.run,
        "verify": verify_power.run,
        "kills": kills.run,
    }
    unknown = set(only or ()) - parts.keys()
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(parts)}")
    console = Console()
    figures: dict[str, list[Figure]] = {}
    for name, run in parts.items():
        if not only or name in only:
            with console.status(f"measuring: {name}"):
                figures[name] = run()
            console.print(_table(name, figures[name]))
    if write:
        with RESULTS.open("a", encoding="utf-8") as results:
            results.write(_markdown(figures))
        console.print(f"kept in {RESULTS}")


def _table(name: str, figures: list[Figure]) -> Table:
    table = Table(title=name, title_justify="left", box=None, pad_edge=False)
    for header in ("figure", "value", "goal", "conditions"):
        table.add_column(header, overflow="fold")
    for figure in figures:
        table.add_row(figure.name, figure.value_text, figure.goal_text, figure.note)
    return table


def _markdown(figures: dict[str, list[Figure]]) -> str:
    machine = hardware()
    lines = [
        "",
        f"## {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "",
        f"{machine['cpu']}, {machine['cpus']} logical CPUs, {machine['memory_gib']} GiB, "
        f"{machine['system']}; "
        + ", ".join(f"{name} {number}" for name, number in versions().items()),
        "",
        *MARKDOWN_HEAD,
    ]
    for part, rows in figures.items():
        lines += markdown_rows(part, rows)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    typer.run(main)
