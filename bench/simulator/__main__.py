"""``python -m bench.simulator``: worlds, searches and rules side by side.

    worlds     what the worlds are made of, and how far they can be believed
    searches   mean regret of searches over paired nights
    rules      the judge's rules, by what is kept, what it truly gained and what was told of it

Nights are kept in ``runs/simulator/nights.jsonl`` as they end, so that a command that was stopped
goes on, and one that is given another search spends only that one's nights.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.simulator.comparison import NightStore, Plan, spend
from bench.simulator.night import Night
from bench.simulator.rules import RULES
from bench.simulator.searches import SEARCHES
from bench.simulator.tables import described, regret_table, rules_table
from bench.simulator.worlds import JOURNAL, WORLDS, Sources, worlds

NIGHTS = Path("runs/simulator/nights.jsonl")
app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
Names = Annotated[list[str] | None, typer.Option("--world", help="Of a world; may repeat.")]
Published = Annotated[list[Path] | None, typer.Option(help="Checkouts of published runs.")]
TablePath = Annotated[Path, typer.Option("--table", help="A table's growing journal.")]
Store = Annotated[Path, typer.Option("--nights-file", help="Where nights are kept.")]
console = Console(width=int(os.environ.get("COLUMNS", "140")))


@app.command("worlds")
def show_worlds(
    name: Names = None, published: Published = None, table: TablePath = JOURNAL
) -> None:
    """What the worlds are made of, how well their surrogates tell what they were not shown, and the
    noise as measured."""
    for one in name or WORLDS:
        for world in worlds(one, Sources(table, tuple(published or ()))):
            console.print(f"[bold]{world.name}[/]", described(world), sep="\n", highlight=False)


@app.command()
def searches(
    search: Annotated[list[str] | None, typer.Option(help="Of a search; may repeat.")] = None,
    name: Names = None,
    nights: Annotated[int, typer.Option(min=2)] = 40,
    iterations: Annotated[int, typer.Option(min=1)] = 100,
    against: Annotated[str, typer.Option(help="Whom the others are paired with.")] = "uniform",
    published: Published = None,
    table: TablePath = JOURNAL,
    kept: Store = NIGHTS,
) -> None:
    """Mean regret (thousandths of the world's score, ± standard error) of searches over paired
    nights, and the mean of their differences to one of them."""
    store = NightStore(kept)
    asked = list(dict.fromkeys([against, *(search or SEARCHES)]))
    for one in name or ["made-up"]:
        found = worlds(one, Sources(table, tuple(published or ())))
        plan = Plan(nights, iterations)
        spent = {
            who: spend(one, found, (who, SEARCHES[who]), plan, store, _told(who)) for who in asked
        }
        console.print(regret_table(one, spent, against, iterations))


@app.command()
def rules(
    rule: Annotated[list[str] | None, typer.Option(help="By name; may repeat.")] = None,
    name: Names = None,
    search: Annotated[str, typer.Option(help="Who proposes.")] = "uniform",
    nights: Annotated[int, typer.Option(min=2)] = 40,
    runs: Annotated[int, typer.Option(min=20, help="Trials that a night may spend.")] = 205,
    published: Published = None,
    table: TablePath = JOURNAL,
    kept: Store = NIGHTS,
) -> None:
    """The judge's rules at equal runs: true gain, what was kept for nothing, what was told."""
    store = NightStore(kept)
    for one in name or ["made-up"]:
        found = worlds(one, Sources(table, tuple(published or ())))
        spent = {
            who: spend(
                one,
                found,
                (search, SEARCHES[search]),
                Plan(nights, 10 * runs, RULES[who], runs),
                store,
                _told(who),
            )
            for who in rule or RULES
        }
        console.print(rules_table(one, spent, runs))


def _told(who: str) -> Callable[[Night], None]:
    def told(night: Night) -> None:
        console.print(
            f"{who}: night {night.seed} in {night.world}, regret "
            f"{1000 * night.regret(night.stages[-1].iteration):.2f}, {night.runs} runs, "
            f"{night.seconds:.1f} s",
            style="dim",
            highlight=False,
        )

    return told


if __name__ == "__main__":
    app()
