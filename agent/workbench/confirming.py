"""Run a confirmation in a session: its options, and the report at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field
from rich.text import Text

from agent.search.confirm.experiment import Confirmation, ConfirmPlan
from agent.search.confirm.texts import FreshTexts
from agent.search.experiment import RetryFailed
from agent.workbench.experiments import experiment
from agent.workbench.session import Session
from autoresearch.values import Frozen, PositiveInt
from autoresearch.words import changes_text
from trainer.spec import BPB
from trajectory.confirmed import Confirmed, ConfirmedConfig, FreshGain


class ConfirmAsked(Frozen):
    """Options of a confirmation."""

    top: PositiveInt = Field(3, description="Best configs to confirm.")
    seeds: int = Field(6, ge=2, le=100, description="Fresh seeds for each, and for the baseline.")
    retry_failed: RetryFailed = False


def confirm(session: Session, asked: ConfirmAsked, heldout: Sequence[str] = ()) -> Confirmed:
    """Run the runs of the confirmation that the journal lacks, and print the progress.

    :param heldout: further sources of text to score.
    :raises Interrupted: if the user stopped it; everything finished is on disk.
    :raises AutoresearchError: if nothing can be confirmed, or a text cannot be used.
    """
    plan = ConfirmPlan.of(session.campaign, top=asked.top, seeds=asked.seeds)
    with session.console.status("preparing the texts to confirm on"):
        texts = FreshTexts.of(session.campaign, heldout)
    work = experiment(
        session, Confirmation, retry_failed=asked.retry_failed, plan=plan, texts=texts
    )
    for line in work.announcement():
        session.say(line)
    return work.run()


def report(found: Confirmed) -> Iterator[Text]:
    """Yield the result for a terminal, the headline first."""
    yield Text(found.headline, style="bold")
    gain = found.chosen.headline
    unit = (gain.measured_in if gain else BPB).short
    yield Text(f"differences to the baseline in {unit}, with 95 % intervals, {found.basis}", "dim")
    for config in found.configs:
        reported = config if config is found.chosen else config.among_others()
        alone = len(found.configs) == 1
        yield from _config_lines(config, alone=alone, stands=reported.stands)
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
        is_headline = gain is config.headline
        wide = "" if alone or not is_headline else f"; of all {gain.wide_span}"
        yield Text(
            f"       {_where(gain):<34} {gain}{wide}",
            style=("green" if stands else "yellow") if is_headline else "",
        )


def _where(gain: FreshGain) -> str:
    return f"fresh seeds, {'text ' if gain.is_on_fresh_text else ''}{gain.text}"
