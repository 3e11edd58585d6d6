"""``python -m bench.simulator``: worlds, searches and rules side by side.

    worlds     what the worlds are made of, and how far they can be believed
    searches   mean regret of searches over paired nights
    verdict    all searches in all worlds, night by night, as Markdown
    rules      the judge's rules, by what is kept, what it truly gained and what was told of it

Nights are kept in ``runs/simulator/nights.jsonl`` as they end, so that a command that was stopped
goes on, and one that is given another search spends only that one's nights.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from autoresearch.errors import AutoresearchError
from bench.simulator.comparison import NightStore, Plan, spend
from bench.simulator.idle import be_idle, one_thread
from bench.simulator.night import Night
from bench.simulator.rules import BEFORE, RULES, rules_markdown, rules_named
from bench.simulator.searches import SEARCHES
from bench.simulator.tables import described, regret_table
from bench.simulator.verdict import Verdict, asked, markdown, places, spend_missing
from bench.simulator.worlds import JOURNAL, WORLDS, Sources, worlds

NIGHTS = Path("runs/simulator/nights.jsonl")
app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
Names = Annotated[list[str] | None, typer.Option("--world", help="Of a world; may repeat.")]
Published = Annotated[list[Path] | None, typer.Option(help="Checkouts of published runs.")]
TablePath = Annotated[Path, typer.Option("--table", help="A table's growing journal.")]
Store = Annotated[Path, typer.Option("--nights-file", help="Where nights are kept.")]
Hours = Annotated[float | None, typer.Option(min=0, help="Of processor time, at most.")]
TablesOnly = Annotated[bool, typer.Option("--tables", help="Spend nothing, tell what is.")]
Idle = Annotated[bool, typer.Option(help="Only what nobody else wants of the machine.")]
REAL_WORLDS = [name for name in WORLDS if name != "made-up"]
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
    listed: Annotated[bool, typer.Option("--list", help="Only say which there are.")] = False,
) -> None:
    """Mean regret (thousandths of the world's score, ± standard error) of searches over paired
    nights, and the mean of their differences to one of them."""
    if listed:
        for who, known in SEARCHES.items():
            marks = ["by name only"] * known.by_name_only
            marks += ["an ask takes longer than it may"] * (not known.within_limits)
            typer.echo(f"{who} ({', '.join(marks)})" if marks else who)
        return
    store = NightStore(kept)
    asked = list(dict.fromkeys([against, *(search or SEARCHES)]))
    for one in name or ["made-up"]:
        found = worlds(one, Sources(table, tuple(published or ())))
        plan = Plan(nights, iterations)
        spent = {
            who: spend(one, found, (who, SEARCHES[who]), plan, store, _told(who)) for who in asked
        }
        console.print(regret_table(one, spent, against, iterations))


@app.command("verdict")
def give_verdict(
    search: Annotated[list[str] | None, typer.Option(help="Of a search; may repeat.")] = None,
    name: Names = None,
    nights: Annotated[int, typer.Option(min=1)] = 40,
    iterations: Annotated[int, typer.Option(min=1)] = 200,
    hours: Hours = None,
    tables: TablesOnly = False,
    idle: Idle = True,
    published: Published = None,
    table: TablePath = JOURNAL,
    kept: Store = NIGHTS,
) -> None:
    """All searches in all worlds: the night 0 of each, then the night 1 of each, and so on.

    Without names it takes those searches that are no mere detail of another; `searches --list` has
    all. A round of them takes about 110 s of processor time a world, measured on a busy machine,
    most of it in the asks of the processes and of TPE. So forty rounds of five worlds are some six
    hours, and `--hours 3` is half of them. Stopped, it goes on where it was, and the rounds that
    are whole are told as Markdown.
    """
    if idle and not tables:
        be_idle()
    sources = Sources(table, tuple(published or ()))
    found = places(name or REAL_WORLDS, sources, _note)
    verdict = Verdict(found, asked(search), Plan(nights, iterations), NightStore(kept))
    with one_thread():
        spend_missing(verdict, 0.0 if tables else hours, _note)
    for place in found:
        typer.echo(f"\n{markdown(verdict, place)}")


@app.command()
def rules(
    rule: Annotated[list[str] | None, typer.Option(help="By name; may repeat.")] = None,
    name: Names = None,
    search: Annotated[str, typer.Option(help="Who proposes.")] = "uniform",
    nights: Annotated[int, typer.Option(min=1)] = 40,
    runs: Annotated[int, typer.Option(min=20, help="Trials that a night may spend.")] = 205,
    hours: Hours = None,
    tables: TablesOnly = False,
    idle: Idle = True,
    published: Published = None,
    table: TablePath = JOURNAL,
    kept: Store = NIGHTS,
) -> None:
    """The judge's rules at equal runs: true gain, what was kept for nothing, what was told.

    The night 0 of every rule comes first, and so on. With uniform edits a night takes one to three
    seconds of processor time: an hour or two for all.
    """
    if idle and not tables:
        be_idle()
    found = places(name or REAL_WORLDS, Sources(table, tuple(published or ())), _note)
    proposing = asked([search])[search]
    compared = {
        who: replace(proposing, rules=rules_named(who))
        for who in dict.fromkeys([BEFORE, *(rule or RULES)])
    }
    plan, kept_as = Plan(nights, 10 * runs, None, runs), dict.fromkeys(compared, search)
    verdict = Verdict(found, compared, plan, NightStore(kept), kept_as)
    with one_thread():
        spend_missing(verdict, 0.0 if tables else hours, _note)
    for place in found:
        typer.echo(f"\n{rules_markdown(place, verdict.told(place), runs)}")


def _note(text: str) -> None:
    console.print(text, style="dim", highlight=False)


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
    try:
        app()
    except AutoresearchError as error:
        typer.echo(str(error), err=True)
        sys.exit(1)
