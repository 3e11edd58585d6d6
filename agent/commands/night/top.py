"""``autoresearch top``: the morning's cull."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from agent.menu.files import menu_of
from agent.workbench.places import (
    CampaignOption,
    MenuOption,
    default_campaign,
    existing_campaign,
    foreign_campaign,
)
from autoresearch.layout import HISTORY_FILE, JOURNAL_FILE
from autoresearch.words import changes_text, duration_text
from funnel.stress.fidelity_words import fidelity_json, fidelity_lines
from trainer.spec import Config, difference
from trajectory.longruns import RankingTest, ranking_test
from trajectory.ranking import Noise, Ranked
from trajectory.reading import Reading, read_campaign
from trajectory.rows import FinalistsRow, StressRow


def top(
    k: Annotated[int, typer.Option("--k", min=1, help="How many.")] = 10,
    campaign: CampaignOption = None,
    menu: MenuOption = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """The K best distinct configs, by posterior mean shrunk by the noise.

    A mark shows where the whole 95 % interval of the difference is better than the baseline.
    """
    foreign = foreign_campaign(campaign or default_campaign(menu))
    if foreign is not None:
        from agent.commands.night.top_foreign import top_foreign  # noqa: PLC0415 (of use to few)

        top_foreign(foreign, k, as_json=as_json)
        return
    directory = existing_campaign(campaign, menu)
    with read_campaign(directory / JOURNAL_FILE, partial(_history_of, directory)) as reading:
        ranked = reading.top(k)
        noise = Noise.of(reading.tally)
        row = reading.campaign()
        baseline = menu_of(row).baseline if row else None
        note = reading.note
        tested = _tested(reading)
        incumbent = reading.tally.incumbent_hash
    if as_json:
        found = _as_json(ranked, noise, baseline, note) | {
            "incumbent": incumbent,
            "ranking": fidelity_json(tested),
        }
        typer.echo(json.dumps(found))
        return
    console = Console()
    if note:
        console.print(Text(note, style="yellow"), soft_wrap=True)
    if not ranked:
        console.print(Text("nothing measured yet"))
        return
    for line in _lines(ranked, baseline):
        console.print(line, soft_wrap=True)
    console.print(Text(_legend(noise), style="dim"))
    if said := _incumbent(ranked, incumbent, baseline):
        console.print(Text(said, style="dim"))
    for text in fidelity_lines(tested) if tested else ():
        console.print(Text(text), soft_wrap=True)


def _history_of(directory: Path) -> str | Path:
    from agent.settings.environment import read_environment  # noqa: PLC0415 (slow to load)

    return read_environment().history_url or directory / HISTORY_FILE


def _tested(reading: Reading) -> RankingTest | None:
    """The ranking as it is now against the latest spread of long runs."""
    ended = reading.newest(FinalistsRow)
    if not any(row.spread for row in ended):
        return None
    return ranking_test(reading.top(sys.maxsize), reading.newest(StressRow), ended)


def _as_json(
    ranked: list[Ranked], noise: Noise | None, baseline: Config | None, note: str | None
) -> dict[str, Any]:
    return {
        "sigma_bpb": noise.sigma if noise else None,
        "sigma_dof": noise.dof if noise else None,
        "note": note,
        "configs": [
            entry.model_dump(mode="json")
            | {"rank": place, "vs_baseline": difference(entry.config, baseline)}
            for place, entry in enumerate(ranked, start=1)
        ],
    }


def _lines(ranked: list[Ranked], baseline: Config | None) -> Iterator[Text]:
    """Two lines a config, so that neither a narrow terminal nor a long difference breaks them."""
    yield Text(
        f"{'#':>3} {'iter':>5} {'n':>3} {'posterior':>10}   {'95 % interval':<17} {'mean':>8}   "
        f"{'against the baseline':<22} {'cost':>7}",
        style="bold",
    )
    for place, entry in enumerate(ranked, start=1):
        yield Text.assemble(
            f"{place:>3} {entry.iter or '-':>5} {entry.n:>3} {entry.posterior_bpb:>10.4f}   "
            f"{_interval(entry):<17} {entry.mean_bpb:>8.4f}   ",
            (f"{_versus(entry):<22}", "green" if entry.beats_baseline else ""),
            f" {duration_text(entry.train_s):>7}",
        )
        said = changes_text(difference(entry.config, baseline))
        yield Text(f"{'':>14}{said or 'the baseline itself'}", style="cyan")


def _incumbent(
    ranked: list[Ranked], config_hash: str | None, baseline: Config | None
) -> str | None:
    """Where the loop goes on from, where that is not the first: a rank is won by all runs of a
    config, the incumbent's place only in a race."""
    if config_hash is None or ranked[0].config_hash == config_hash:
        return None
    if baseline is not None and baseline.config_hash == config_hash:
        return "the loop goes on from the baseline, which nothing has beaten in a race yet"
    for place, entry in enumerate(ranked, start=1):
        if entry.config_hash == config_hash:
            return (
                f"the loop goes on from its incumbent, number {place}, iteration {entry.iter}, "
                "which nothing has beaten in a race since"
            )
    return "the loop goes on from its incumbent, which is not among these"


def _interval(entry: Ranked) -> str:
    if entry.lo_bpb is None or entry.hi_bpb is None:
        return "unknown"
    return f"{entry.lo_bpb:.4f} … {entry.hi_bpb:.4f}"


def _versus(entry: Ranked) -> str:
    if entry.delta_vs_baseline is None:
        return ""
    half = "" if entry.delta_hi is None else f" ± {entry.delta_hi - entry.delta_vs_baseline:.4f}"
    return f"{entry.delta_vs_baseline:+.4f}{half}{' *' if entry.beats_baseline else '  '}"


def _legend(noise: Noise | None) -> str:
    text = (
        "val_bpb, lower is better; against the baseline as believed, ± half its 95 % interval, * "
        "where all of that is better; n seeds measured; cost is training time"
    )
    if noise is None:
        return f"{text}; the noise is unknown: nothing was replicated"
    return f"{text}; one run has sd {noise.sigma:.4f} ({noise.dof} degrees of freedom)"
