"""A confirmation at work: what is asked for, said while it runs, and told at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field
from rich.console import Console
from rich.text import Text

from agent.search.confirm.plan import ConfirmPlan, ConfirmSpec, Entrant, FreshTexts
from agent.search.confirm.runs import Confirmation
from agent.workbench.sitting import Sitting
from autoresearch.options import AsOption
from autoresearch.values import Frozen, PositiveInt
from autoresearch.words import changes_text, counted, duration_text
from trainer.spec import BPB, CommandOk, CurvePoint, Measure, Place, TrialOk, TrialSpec
from trajectory.confirmed import Confirmed, ConfirmedConfig, FreshGain
from trajectory.rows import ConfirmRow, Role, TrialRecord


class ConfirmAsked(Frozen):
    """Which confirmation a person wants."""

    top: PositiveInt = Field(3, description="Best configs to confirm.")
    seeds: int = Field(6, ge=2, le=100, description="Fresh seeds for each, and for the baseline.")
    retry_failed: Annotated[bool, AsOption("--retry-failed")] = Field(
        False, description="Run again what ended without a score."
    )


class ConfirmDisplay:
    """A line for every run; an :class:`agent.search.confirm.runs.ConfirmWatcher`."""

    def __init__(self, console: Console, measure: Measure = BPB) -> None:
        self._console = console
        self._measure = measure
        self._heads: dict[tuple[str, int], str] = {}
        """Of the runs at work, by config and seed."""

    def note(self, text: str) -> None:
        self._console.print(Text(text, style="yellow"), soft_wrap=True, highlight=False)

    def run_begins(self, entrant: Entrant, seed: int, number: int, runs: int) -> None:
        name = f"iteration {entrant.ranked.iter}" if entrant.ranked.iter else "the baseline"
        self._heads[entrant.ranked.config_hash, seed] = (
            f"  run {number} of {runs}  seed {seed}  rank {entrant.rank}, {name}"
        )

    def trial_started(self, spec: TrialSpec, role: Role) -> None: ...
    def trial_placed(self, trial_id: str, place: Place) -> None: ...
    def trial_point(self, trial_id: str, point: CurvePoint) -> None: ...
    def trial_ended(self, record: TrialRecord) -> None: ...
    def trial_given_up(self, trial_id: str) -> None: ...

    def run_ended(self, row: ConfirmRow) -> None:
        result = row.trial.result
        said: str = result.status
        if isinstance(result, TrialOk):
            others = "".join(f", {text.val_bpb:.4f}" for text in result.texts)
            said = f"{result.val_bpb:.4f}{others} bpb"
        elif isinstance(result, CommandOk):
            said = f"{self._measure.text(result.objective)} {self._measure.short}"
        head = self._heads.pop((row.config_hash, row.trial.seed), "")
        took = duration_text(row.trial.wall_s)
        self._console.print(Text(f"{head}: {said}  [{took}]"), soft_wrap=True, highlight=False)


def confirm(sitting: Sitting, asked: ConfirmAsked, heldout: Sequence[str] = ()) -> Confirmed:
    """Run what the journal lacks of the confirmation, and say how it goes.

    :param heldout: further sources of text to score.
    :raises Interrupted: when a person stopped it; everything finished is on disk.
    :raises AutoresearchError: where nothing can be confirmed, or a text cannot be used.
    """
    campaign = sitting.campaign
    plan = ConfirmPlan.of(campaign, top=asked.top, seeds=asked.seeds)
    with sitting.console.status("preparing the texts to confirm on"):
        texts = FreshTexts.of(campaign, heldout)
    spec = ConfirmSpec(campaign, texts)
    display = ConfirmDisplay(sitting.console, campaign.menu.measure)
    work = Confirmation(
        campaign=campaign,
        plan=plan,
        spec=spec,
        runner=sitting.runner(spec, display),
        watcher=display,
        stop=sitting.stop,
        meter=sitting.sampler,
        retry_failed=asked.retry_failed,
    )
    for line in _announcement(work):
        sitting.say(line)
    return work.run().found


def _announcement(work: Confirmation) -> Iterator[str]:
    plan = work.plan
    runs, missing = len(plan.seeds) * (1 + len(plan.finalists)), len(work.missing())
    yield (
        f"confirm   {len(plan.finalists)} of the best and the baseline, on "
        f"{len(plan.seeds)} seeds that chose nothing ({plan.seeds[0]} … {plan.seeds[-1]})"
    )
    for line in work.spec.texts.lines:
        yield f"          {line}"
    if looks := work.looks():
        yield (
            f"          {counted(looks, 'earlier look')} at this campaign's confirmations: the "
            "intervals are wider for it"
        )
    if looked := work.looked_before():
        yield (
            f"          {counted(looked, 'other config')} of this campaign looked at this text "
            "before, and every look fits it a little; --heldout FILE brings another"
        )
    known = f", {runs - missing} of them in the journal" if missing < runs else ""
    left_s = work.expected_s()
    end = datetime.now() + timedelta(seconds=left_s)
    expected = f"; about {duration_text(left_s)} by the pace of the search, until {end:%a %H:%M}"
    yield f"          {runs} runs{known}{expected if missing else '; nothing is left to run'}"


def told(found: Confirmed) -> Iterator[Text]:
    """What it found, for a terminal: the headline first."""
    yield Text(found.headline, style="bold")
    gain = found.chosen.headline
    unit = (gain.measured_in if gain else BPB).short
    yield Text(f"differences to the baseline in {unit}, with 95 % intervals, {found.basis}", "dim")
    for config in found.configs:
        told_of = config if config is found.chosen else config.among_others()
        alone = len(found.configs) == 1
        yield from _config_lines(config, alone=alone, stands=told_of.stands)
    if len(found.configs) > 1:
        yield Text(
            f"the plain interval is for iteration {found.chosen.iter}, which the search chose; who "
            f"picks among the {len(found.configs)} by these runs chooses again, and has the wider",
            style="dim",
        )


def _config_lines(config: ConfirmedConfig, *, alone: bool, stands: bool) -> Iterator[Text]:
    yield Text.assemble(
        f"{config.rank:>3}  iteration {config.iter}  ", (changes_text(config.changes), "cyan")
    )
    if config.claimed is not None:
        measure = config.gains[0].measured_in if config.gains else BPB
        span = ""
        if config.claimed_lo is not None and config.claimed_hi is not None:
            span = f" ({measure.signed_span(config.claimed_lo, config.claimed_hi)})"
        claimed = measure.signed(config.claimed)
        yield Text(f"       {'claimed by the search':<34} {claimed}{span}")
    if config.trouble:
        yield Text(f"       not confirmed: {config.trouble}", style="red")
    for gain in config.gains:
        told_here = gain is config.headline
        wide = "" if alone or not told_here else f"; of all {gain.wide_span}"
        yield Text(
            f"       {_where(gain):<34} {gain}{wide}",
            style=("green" if stands else "yellow") if told_here else "",
        )


def _where(gain: FreshGain) -> str:
    return f"fresh seeds, {'text ' if gain.is_on_fresh_text else ''}{gain.text}"
