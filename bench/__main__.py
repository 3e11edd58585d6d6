"""One command measures everything: ``python -m bench`` (or ``make bench``).

``--nanogpt DIR`` points to a checkout of karpathy/nanoGPT to race against, ``--published DIR`` to
one of published runs to forecast or to search among, ``--scripts DIR`` to one of training scripts
to read; ``--write`` appends the table, with date and machine, to bench/RESULTS.md.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from agent.search.first_row import hardware, versions
from bench import (
    attribution,
    confirm_honesty,
    confirm_looks,
    corpus_speed,
    envelope_shapes,
    fidelity,
    history_scale,
    judge_few,
    judge_honesty,
    judge_rules,
    ladder_truth,
    loop_overhead,
    lr_transfer,
    memory_model,
    own_trainer,
    published_grids,
    report_scale,
    script_options,
    stall_power,
    startup,
    trainer_speed,
    transfer,
    trial_overhead,
    utilisation,
    verify_power,
)
from bench.cluster import figures as cluster
from bench.figure import MARKDOWN_HEAD, Figure, markdown_rows
from bench.lanes import figures as lanes
from bench.models import nights as models_nights
from bench.models import prompt_size, turns
from bench.searches import quality as searches_quality
from bench.simulator import figures as nights

RESULTS = Path(__file__).with_name("RESULTS.md")


def main(
    only: Annotated[list[str] | None, typer.Option(help="Parts to run; all by default.")] = None,
    nanogpt: Annotated[Path | None, typer.Option(help="A checkout of nanoGPT.")] = None,
    published: Annotated[
        list[Path] | None,
        typer.Option(help="Checkouts of published runs, see bench/published_grids.py."),
    ] = None,
    scripts: Annotated[
        list[Path] | None,
        typer.Option(help="Checkouts of training scripts, see bench/script_options.py."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Append to bench/RESULTS.md.")] = False,
) -> None:
    """Measure, print, and with --write keep."""
    parts: dict[str, Callable[[], list[Figure]]] = {
        "loop": loop_overhead.run,
        "trial": trial_overhead.run,
        "lanes": lanes.run,
        "trainer": lambda: trainer_speed.run(nanogpt),
        "corpus": corpus_speed.run,
        "history": history_scale.run,
        "search": searches_quality.run,
        "nights": lambda: nights.run(published),
        "judge": lambda: [*judge_honesty.run(), *judge_few.run()],
        "confirm": lambda: [*confirm_honesty.run(), *confirm_looks.run()],
        "rules": judge_rules.run,
        "fidelity": fidelity.run,
        "attribution": attribution.run,
        "ladder": ladder_truth.run,
        "memory": memory_model.run,
        "width": lr_transfer.run,
        "shapes": envelope_shapes.run,
        "own": lambda: own_trainer.run(nanogpt),
        "report": report_scale.run,
        "scripts": lambda: script_options.run(scripts),
        "startup": startup.run,
        "transfer": transfer.run,
        "utilisation": utilisation.run,
        "stalls": stall_power.run,
        "verify": verify_power.run,
        "published": lambda: published_grids.run(published),
        "cluster": cluster.run,
        "models": lambda: [*turns.run(), *prompt_size.run(), *models_nights.run()],
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
