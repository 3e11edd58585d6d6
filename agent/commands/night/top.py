"""``autoresearch top``: rank the best configs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from agent.commands.campaign_view import CampaignView
from agent.commands.night.board import BoardPlace, noise_text, table
from agent.menu.files import ProxyMenu, menu_of
from agent.menu.trainer_table import evaluation_text
from agent.session.console import answer
from agent.session.places import (
    CampaignOption,
    existing_campaign,
    foreign_campaign,
    latest_campaign,
)
from autoresearch.closing import gc_paused
from autoresearch.words import changes_text, duration_text
from funnel.stress.fidelity_words import fidelity_json, fidelity_lines
from trainer.schema import BPB, AnyConfig, Measure, code_diffs, difference
from trajectory.confirmed import ConfirmedConfig
from trajectory.evidence import SAME_RUNS
from trajectory.headline import Headline
from trajectory.longruns import ranking_test
from trajectory.ranking import Posteriors, Ranked, Unranked
from trajectory.rows import CalibratedRow, CampaignRow, FinalistsRow, StressRow
from trajectory.statistics.population import MIN_CONFIGS

if TYPE_CHECKING:
    from trajectory.formats.importing import ImportedCampaign

Board: TypeAlias = tuple[dict[str, Any], list[RenderableType]]
"""JSON fields and lines; a terminal wraps those in a group, and no others."""
_CODE_STYLES = {"-": "red", "+": "green"}
ESTIMATE = "estimate: the mean of its runs, shrunk towards the other configs by the noise"
AGAINST_BASELINE = (
    "against the baseline: the difference of the estimates ± half its 95 % interval, "
    "* better by all of its 99 % interval"
)

UNSHRUNK = (
    f"fewer than {MIN_CONFIGS} configs are too few to shrink any by: "
    "the first is lucky as well as good"
)


def top(
    k: Annotated[int, typer.Option("--k", min=1, help="Number of configs.")] = 10,
    campaign: CampaignOption = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Rank the best configs, shrunk by the noise, with intervals.

    The difference to the baseline is marked where its whole 99 % interval is better.
    """
    with gc_paused():
        foreign = foreign_campaign(campaign or latest_campaign())
        if foreign is None:
            found = own_board(existing_campaign(campaign), k)
        else:
            found = foreign_board(foreign, k)
        answer(*found, as_json=as_json)


# --- a campaign of this tool --------------------------------------------------------------------


def own_board(directory: Path, k: int) -> Board:
    """Return the ranking of a campaign of this tool, as JSON fields and as lines."""
    results = CampaignView(directory).results()
    posteriors = Posteriors.of(results.evidence)
    ranked = posteriors.best(k)
    noise = posteriors.noise
    row = results.campaign
    menu = menu_of(row) if row else None
    baseline = menu.baseline if menu else None
    ended, tested = results.newest(FinalistsRow), None
    if any(row.spread for row in ended):  # the latest spread of long runs tests the ranking
        tested = ranking_test(posteriors.best(sys.maxsize), results.newest(StressRow), ended)
    unranked = Unranked.of(results.evidence)
    few = len(results.evidence.contenders()) <= MIN_CONFIGS  # including the baseline
    incumbent = results.evidence.incumbent_hash
    found = results.confirmed()
    headline = Headline.of(posteriors, found, row)
    calibrated = next((row.found for row in results.newest(CalibratedRow, 1)), None)
    measure = row.measured_in if row else BPB
    configs, places, notes = _entries(ranked, results.latest_confirmed(), baseline, measure)
    fields = {
        "unit": measure.unit,
        "direction": measure.direction,
        "sigma": noise.sigma if noise else None,
        "sigma_dof": noise.dof if noise else None,
        "note": None,
        "left_out": [],
        "configs": configs,
        "unranked": dataclasses.asdict(unranked),
        "incumbent": incumbent,
        "ranking": fidelity_json(tested),
        "calibrated": calibrated.model_dump(mode="json") if calibrated else None,
        "confirmed": found.model_dump(mode="json") if found else None,
        "headline": headline.model_dump(mode="json"),
    }
    rows = [Text(line, style="bold") for line in _result(headline)]
    if ranked:
        rows += table(places, measure)
    legend = _legend(posteriors, measure, menu, few=few) if ranked else None
    below = (legend, str(unranked), _incumbent(row, ranked, incumbent) if row and ranked else None)
    notes += [Text(line, style="dim") for line in below if line]
    fidelity = [*(fidelity_lines(tested) if tested else ())]
    if calibrated is not None:
        fidelity.append(f"fidelity  {calibrated.headline}")
    if not ranked:
        notes.insert(0, Text("nothing measured yet"))
    return fields, [*rows, *map(Group, notes), *fidelity]


def _entries(
    ranked: Sequence[Ranked],
    fresh: Mapping[str, ConfirmedConfig],
    baseline: AnyConfig | None,
    measure: Measure,
) -> tuple[list[dict[str, Any]], list[BoardPlace], list[Text]]:
    """Return the ranked configs as JSON and as places, and lines on their changes of code."""
    before = baseline.said if baseline else {}
    configs: list[dict[str, Any]] = []
    places: list[BoardPlace] = []
    notes: list[Text] = []
    for rank, entry in enumerate(ranked, start=1):
        said = fresh.get(entry.config_hash)
        changed = difference(entry.config, baseline)
        code = code_diffs(entry.config, before) if baseline else {}
        estimates = measure.fields(entry.objective, entry.objective_lo, entry.objective_hi)
        confirmed = said.model_dump(mode="json") if said else None
        more = {"rank": rank, "vs_baseline": changed, "code": code, "confirmed": confirmed}
        configs.append(entry.model_dump(mode="json") | estimates | more)
        described = changes_text(changed) or "the baseline itself"
        cost = duration_text(entry.train_s)
        places.append(BoardPlace(entry, described, cost, entry.footprint, _fresh(said)))
        for name, lines in code.items():
            notes.append(Text(f"{rank:>3} {name}"))
            notes += (Text(f"    {line}", _CODE_STYLES.get(line[:1], "")) for line in lines)
    return configs, places, notes


def _result(headline: Headline) -> list[str]:
    """Return the campaign's result, and a note if it is not confirmed or the ranking changed."""
    if headline.verdict == "nothing measured":
        return []
    lines = [line for line in (headline.line, headline.outlook) if line]
    if headline.verdict == "claimed":
        lines.append("confirm it on fresh seeds and text with: autoresearch confirm")
    if headline.first_now is not None:
        lines.append(
            f"the ranking has changed since, and iteration {headline.first_now} is its first now; "
            "run autoresearch confirm again"
        )
    return lines


def _fresh(said: ConfirmedConfig | None) -> str:
    if said is None:
        return ""
    if said.headline is None:
        return f"not confirmed: {said.trouble}"
    gain = said.headline
    name = gain.text_in_words
    text = f"fresh text ({name})" if gain.is_on_fresh_text else name
    return f"{said.verdict}: {gain} on {gain.seeds} fresh seeds and {text}"


def _incumbent(row: CampaignRow, ranked: list[Ranked], config_hash: str | None) -> str | None:
    """Return a sentence on the config that the loop continues from, if it is not the first of the
    ranking.

    All runs of a config decide its rank, but only a race makes it the incumbent.
    """
    if row.reference == "baseline":
        return "the next proposals edit the baseline, as this campaign's settings say"
    if config_hash is None or ranked[0].config_hash == config_hash:
        return None
    if menu_of(row).baseline.config_hash == config_hash:
        return "the next proposals edit the baseline: no config has beaten it in a race yet"
    for place, entry in enumerate(ranked, start=1):
        if entry.config_hash == config_hash:
            return (
                f"the next proposals edit the incumbent, number {place}, iteration {entry.iter}: "
                "no config has beaten it in a race yet"
            )
    return "the next proposals edit the incumbent, which is not in this table"


def _legend(posteriors: Posteriors, measure: Measure, menu: ProxyMenu | None, *, few: bool) -> str:
    noise, baseline = posteriors.noise, posteriors.baseline
    text = f"{measure.name}, {measure.better}"
    if menu is not None and menu.trainer is not None:
        text = f"the score is {evaluation_text(menu.trainer)}"
        if noise is not None and noise.sigma == 0:
            text += f"; {SAME_RUNS}, so that n runs are one, and no interval knows of chance"
    text += f"; {ESTIMATE}; {AGAINST_BASELINE}; n seeds measured; cost is training time"
    if noise is None:
        return f"{text}; the noise is unknown: nothing was replicated"
    if few:
        text += f"; {UNSHRUNK}"
    text += f"; {noise_text(noise, measure)}"
    if baseline is not None and baseline.n > 1:
        sd = measure.size(stdev(baseline.scores.values()))
        text += f"; the baseline's own {baseline.n} runs have sd {sd}, which every ± against it has"
    return text


# --- a campaign of another tool -----------------------------------------------------------------


def foreign_board(campaign: ImportedCampaign, k: int) -> Board:
    """Return the ranking of a campaign of another tool."""
    from trajectory.formats.standings import Standings, as_json  # noqa: PLC0415 (of use to few)

    found, provenance = Standings.of(campaign.runs), campaign.provenance
    ranked = found.top(k)
    lower = "lower is better, as another tool measured it"
    legend = f"{provenance.measure}, {lower}; {ESTIMATE}; {AGAINST_BASELINE}; n runs"
    if found.baseline is None:
        legend += "; its baseline is not known"
    if found.noise is None:
        legend += "; the noise is unknown: no config was run twice, so the first may be luck"
    else:
        legend += f"; {noise_text(found.noise)}"
    if provenance.skipped:
        legend += f"; left out of the source: {provenance.left_out}"
    fields = {
        "measure": provenance.measure,
        "source": provenance.source,
        "format": provenance.format,
        "left_out": [skipped.model_dump() for skipped in provenance.skipped],
        "sigma": found.noise.sigma if found.noise else None,
        "sigma_dof": found.noise.dof if found.noise else None,
        "configs": [
            as_json(standing) | {"rank": place} for place, standing in enumerate(ranked, start=1)
        ],
    }
    if not ranked:
        return fields, ["nothing measured"]
    places = [BoardPlace(one, found.described(one.entry)) for one in ranked]
    return fields, [*table(places), Group(Text(legend, style="dim"))]
