"""Conclude a session: confirm the best configs if asked, and print what the search found."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import typer
from pydantic import Field
from rich.text import Text

from agent.loggers.git_branch import GitBranch
from agent.search.confirmation import Confirmation
from agent.search.confirmation_plan import ConfirmPlan, FreshTexts
from agent.search.experiment import RetryFailed
from agent.search.stopping import Interrupted
from agent.session.console import print_lines
from agent.session.experiments import ask_if_long, experiment
from agent.session.session import Session
from agent.settings.environment import read_environment
from autoresearch.errors import AutoresearchError
from autoresearch.program import quote
from autoresearch.values import Frozen, PositiveInt
from autoresearch.words import changes_text, counted
from trainer.schema import BPB, Measure
from trainer.telemetry import TelemetrySummary
from trajectory.confirmation import CONFIRM_SEEDS
from trajectory.confirmed import Confirmed
from trajectory.evidence import Evidence
from trajectory.headline import Headline
from trajectory.ranking import Noise, Ranked, ranked_config
from trajectory.rows import ConfirmedRow
from trajectory.track_record import credit_text


def conclude(
    session: Session, reached: str, branch: GitBranch | None, *, confirming: bool, as_json: bool
) -> str:
    """Print what the session found, and return the finding in one sentence. A confirmation that
    fails does not suppress the summary.

    :raises Interrupted: if the user stopped the confirmation.
    """
    found, error = _confirmed(session) if confirming else (None, None)
    headline = session.campaign.results.headline()
    if branch is not None and (line := branch.tag(found)) is not None:
        session.say(line)
    usage = session.sampler.summary(read_environment().usd_per_kwh)
    campaign, evidence = session.campaign, session.campaign.evidence
    trouble = "it was stopped" if isinstance(error, Interrupted) else str(error or "")
    if as_json:
        records, credits = evidence.track_records, evidence.credits
        summary = {
            "campaign": str(campaign.directory),
            "iterations": evidence.iterations,
            "configs": len(evidence.configs),
            **believed_scores(evidence, campaign.menu.measure),
            "proposers": {
                kind: asdict(record) | {"refused": dict(sorted(record.refused.items()))}
                for kind, record in sorted(records.items())
            },
            "credits": {arm: asdict(credit) for arm, credit in credits.items()},
            "telemetry": usage.model_dump(mode="json") if usage.samples else None,
            "ended": reached,
            "headline": headline.model_dump(mode="json"),
            "confirmed": found.model_dump(mode="json") if found else None,
            "not_confirmed": trouble,
        }
        typer.echo(json.dumps(summary))
    else:
        _print(session, usage, reached, found)
    if trouble:
        session.say(
            f"not confirmed: {trouble}; the search's results are unaffected; retry with: "
            f"autoresearch confirm --campaign {quote(campaign.directory)}",
            "yellow",
        )
    if not as_json:
        if headline.outlook:
            session.say(f"outlook   {headline.outlook}")
        session.say(f"result    {headline.line}", "bold")
    if isinstance(error, Interrupted):
        raise error
    return headline.line


def _confirmed(session: Session) -> tuple[Confirmed | None, AutoresearchError | Interrupted | None]:
    """Return the confirmation of what was kept, or the error that ended it; neither if nothing is
    to be confirmed."""
    evidence = session.campaign.evidence
    if evidence.runs_are_the_same or evidence.incumbent_hash == evidence.baseline_hash:
        return None, None  # fresh runs that are the same add nothing
    usual = ConfirmAsked()
    latest = next(iter(session.campaign.results.newest(ConfirmedRow, 1)), None)
    seeds = usual.seeds if latest is None else max(usual.seeds, len(latest.found.seeds))
    try:
        return confirm(session, usual.model_copy(update={"seeds": seeds})), None
    except (AutoresearchError, Interrupted) as error:
        return None, error


def believed_scores(evidence: Evidence, measure: Measure) -> dict[str, Any]:
    """Return the estimated scores of the baseline and the incumbent, in the campaign's own unit and
    direction, and ``gain``, the difference."""
    noise = Noise.of(evidence)
    baseline = ranked_config(evidence, evidence.baseline_hash)
    best = ranked_config(evidence, evidence.incumbent_hash)
    return {
        "unit": measure.unit,
        "direction": measure.direction,
        "sigma": noise.sigma if noise else None,
        "sigma_dof": evidence.within_dof,
        "baseline": _scores(baseline, measure),
        "incumbent": _scores(best, measure),
        "gain": measure.fields(best.delta_vs_baseline, best.delta_lo, best.delta_hi)
        if best is not None and best.delta_vs_baseline is not None
        else None,
    }


def _scores(ranked: Ranked | None, measure: Measure) -> dict[str, Any] | None:
    if ranked is None:
        return None
    scores = measure.fields(ranked.objective, ranked.objective_lo, ranked.objective_hi)
    return {"config_hash": ranked.config_hash, "iter": ranked.iter, "n": ranked.n, **scores}


def _print(
    session: Session, usage: TelemetrySummary, reached: str, found: Confirmed | None
) -> None:
    campaign = session.campaign
    evidence, measure = campaign.evidence, campaign.menu.measure
    noise = Noise.of(evidence)
    if noise is not None:
        session.say(
            f"noise     sd {measure.size(noise.sigma)} {measure.short} a run, "
            f"from {evidence.within_dof} degrees of freedom"
        )
    records = evidence.track_records
    if evidence.credits or len(records) > 1:
        kept = " · ".join(f"{kind} {record}" for kind, record in sorted(records.items()))
        session.say(f"proposers {kept}")
    if credit := credit_text(evidence.credits):
        session.say(f"credit    {credit}: standard deviations better than the search")
    if usage.samples:
        print_lines(session.console, (f"gpu       {line}" for line in usage.lines()))
    print_lines(session.console, _details(found) if found else ())
    top = shlex.join(["autoresearch", "top", "--k", "10", "--campaign", str(campaign.directory)])
    session.say(
        f"done      {counted(evidence.iterations, 'iteration')}, "
        f"{counted(len(evidence.configs), 'config')}: {reached}; rank them with:\n  {top}"
    )


class ConfirmAsked(Frozen):
    """Options of a confirmation."""

    top: PositiveInt = Field(3, description="Best configs to confirm.")
    seeds: int = Field(
        CONFIRM_SEEDS, ge=2, le=100, description="Fresh seeds for each, and for the baseline."
    )
    retry_failed: RetryFailed = False


def confirm(
    session: Session, asked: ConfirmAsked, heldout: Sequence[str] = (), *, yes: bool = True
) -> Confirmed:
    """Run the runs of the confirmation that the journal lacks, and print the progress.

    :param heldout: further sources of text to score.
    :param yes: whether it starts without a question, however long it takes.
    :raises Interrupted: if the user stopped it; everything finished is on disk.
    :raises AutoresearchError: if nothing can be confirmed, or a text cannot be used.
    """
    plan = ConfirmPlan.of(session.campaign, top=asked.top, seeds=asked.seeds)
    with session.console.status("preparing the texts to confirm on"):
        texts = FreshTexts.of(session.campaign, heldout)
    work = experiment(
        session, Confirmation, retry_failed=asked.retry_failed, plan=plan, texts=texts
    )
    print_lines(session.console, work.announcement())
    ask_if_long(work, yes=yes)
    return work.run()


def report(found: Confirmed, headline: Headline) -> Iterator[Text]:
    """Yield the result for a terminal, the headline first."""
    yield Text(headline.line, style="bold")
    yield from _details(found)


def _details(found: Confirmed) -> Iterator[Text]:
    headline = found.chosen.headline
    unit = (headline.measured_in if headline else BPB).short
    yield Text(f"differences to the baseline in {unit}, with 95 % intervals, {found.basis}", "dim")
    for config in found.configs:
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
        reported = config if config is found.chosen else config.among_others()
        for gain in config.gains:
            is_headline = gain is config.headline
            where = f"fresh seeds, {'text ' if gain.is_on_fresh_text else ''}{gain.text_in_words}"
            wide = ""
            if is_headline and len(found.configs) > 1:
                wide = f"; for all {len(found.configs)} at once {gain.wide_span}"
            yield Text(
                f"       {where:<34} {gain}{wide}",
                style=("green" if reported.stands else "yellow") if is_headline else "",
            )
    if len(found.configs) > 1:
        yield Text(
            f"the search chose iteration {found.chosen.iter} before these runs, so its plain "
            f"interval holds; to choose another of the {len(found.configs)} by these runs, read "
            "the wider intervals",
            style="dim",
        )
