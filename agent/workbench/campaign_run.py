"""Run the loop: choose settings, create or resume a campaign, work on it, and summarize it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import typer
from rich.console import Console

from agent.loggers.background import CLOSE_S, HURRIED_CLOSE_S, BackgroundLogger
from agent.loggers.base import CampaignFacts
from agent.loggers.choice import LogTarget, log_targets
from agent.loggers.git_branch import GitBranch
from agent.loggers.notices import KeepNotices, Notifier
from agent.loggers.watching import LoggingWatcher
from agent.menu.files import ProxyMenu, load_menu, menu_of
from agent.menu.rails import Rails
from agent.proposers.choice import Choice, choose_proposer
from agent.proposers.priors import NOTE, Prior, note_on, read_priors
from agent.search.campaign import Campaign
from agent.search.campaign_settings import begun_settings, new_settings, resumed_settings
from agent.search.first_row import read_campaign_row
from agent.search.goal import Goal
from agent.search.loop import Loop
from agent.search.scribe import Scribe, timestamp
from agent.search.stopping import Interrupted
from agent.settings.campaign import CampaignSettings
from agent.settings.environment import read_environment
from agent.workbench.confirming import ConfirmAsked, confirm, report
from agent.workbench.console import say
from agent.workbench.device_choice import AUTO, choose_device
from agent.workbench.display import Progress, display_for
from agent.workbench.greeting import greet
from agent.workbench.places import DEFAULT_MENU, refuse_imported
from agent.workbench.session import Session
from agent.workbench.warm_up import warm_up
from autoresearch.errors import AutoresearchError
from autoresearch.words import counted
from trainer.code_check import CodeRunner
from trainer.executors.lanes import Lanes
from trainer.spec import Measure, gpt
from trainer.telemetry import TelemetrySummary
from trajectory.confirmed import NOTHING_YET, Confirmed, finding
from trajectory.evidence import Evidence
from trajectory.ranking import Noise, Ranked, ranked_config
from trajectory.rows import ConfirmedRow, EventRow
from trajectory.track_record import credit_text


def run_campaign(
    directory: Path,
    chosen: dict[str, Any],
    *,
    goal: Goal,
    prompts: Path | None = None,
    program: Path | None = None,
    priors: Sequence[Path] = (),
    log: Sequence[str] = (),
    git: bool = False,
    target_tokens: Callable[[str], int | None] = lambda _menu_name: None,
    notifier: Notifier | None = None,
    confirming: bool = False,
    as_json: bool = False,
) -> None:
    """Create or resume the campaign, and work on it until its goal is reached.

    The user's choices are checked before anything is created.

    :param priors: earlier campaigns that the proposers learn from.
    :param log: ``--log`` options.
    :param git: whether to commit each keep to a branch of the script's repository.
    :param target_tokens: returns the token budget of the target whose proxies the menu of a name
        has, if any.
    :param notifier: sends the notices; None: one without addresses but those of the environment.
    :param confirming: whether to end with a confirmation, if something was kept.
    """
    console = Console(stderr=as_json)
    settings, menu = chosen_settings(directory, chosen, console)
    rails = Rails(menu, budget=settings.budget, max_changes=settings.max_changes)
    known = read_priors(priors, menu, directory)
    targets = log_targets(log)
    notifier = notifier or Notifier()
    choice = choose_proposer(
        settings,
        read_environment(),
        rails,
        directory=directory,
        prompts=prompts,
        program=program,
        priors=known,
    )
    with (
        _notify_on_error(notifier, directory, console),
        Session.opened(directory, settings, menu, console) as session,
    ):
        rails.memory = session.memory.model
        unsandboxed = session.campaign.settings.allow_unsandboxed
        rails.run_code = CodeRunner(price=settings.code_price, allow_unsandboxed=unsandboxed)
        branch = GitBranch(session.campaign) if git else None
        greet(
            session,
            f"proposer  {choice.description}",
            *(f"prior     {one}" for one in known),
            *([branch.note] if branch else ()),
            target_tokens=target_tokens(menu.name),
        )
        if line := warm_up(session.campaign, session.executor, session.stop):
            session.say(line)
        reached = _work(session, rails, choice, goal, known, targets, notifier, branch)
        result = _report(session, reached, branch, confirming=confirming, as_json=as_json)
        notifier.send(directory, "finished", f"{reached}: {result}")


@contextmanager
def _notify_on_error(notifier: Notifier, directory: Path, console: Console) -> Iterator[None]:
    """Send a notice of the error that ends the session, which by then names a full disk, and wait
    for the notices under way."""
    try:
        yield
    except typer.Exit:  # a person stopped it
        raise
    except Exception as error:
        fix = "fix this, then run the same loop command again"
        notifier.send(directory, "stopped", f"{error}; {fix}", "status")
        raise
    finally:
        if failed := notifier.close():
            say(console, failed, "yellow")


def _report(
    session: Session, reached: str, branch: GitBranch | None, *, confirming: bool, as_json: bool
) -> str:
    """Print what the session found, and return the finding in one sentence."""
    confirmation = _Confirmation.of(session) if confirming else _Confirmation()
    if branch is not None and (line := branch.tag(confirmation.found)) is not None:
        session.say(line)
    usage = session.sampler.summary(read_environment().usd_per_kwh)
    if as_json:
        summary = _summary(session.campaign, usage) | {"ended": reached}
        typer.echo(json.dumps(summary | confirmation.as_json()))
    else:
        _conclude(session, usage, reached, confirmation.found)
    confirmation.say_trouble(session)
    if confirmation.found is not None:
        return confirmation.found.headline
    evidence = session.campaign.evidence
    best = ranked_config(evidence, evidence.incumbent_hash)
    if best is None:
        return NOTHING_YET
    gain = best.delta_vs_baseline, best.delta_lo, best.delta_hi
    return finding(session.campaign.menu.measure, None, *gain)


def _work(
    session: Session,
    rails: Rails,
    choice: Choice,
    goal: Goal,
    priors: Sequence[Prior],
    targets: Sequence[LogTarget],
    notifier: Notifier,
    branch: GitBranch | None,
) -> str:
    campaign = session.campaign
    display = display_for(session.console, Progress(campaign, goal))
    scribe = Scribe(campaign, session.stop, display.note)
    facts = CampaignFacts.of(campaign.directory, campaign.row)
    loggers = [target.started(facts) for target in targets]
    if notifier.keeps:
        loggers.append(BackgroundLogger("notices", lambda: KeepNotices(notifier, facts.directory)))
    if branch is not None:
        loggers.append(BackgroundLogger("git", lambda: branch))
    watcher = LoggingWatcher(display, loggers, on_trouble=scribe.take_note)
    loop = Loop(
        campaign=campaign,
        proposer=choice.proposer,
        rails=rails,
        rules=campaign.settings.rules(),
        runner=session.runner(watcher),
        watcher=watcher,
        stop=session.stop,
        meter=session.sampler,
        asks_early=choice.is_slow,
    )
    if isinstance(session.executor, Lanes):
        session.executor.on_loss = partial(_tell_loss, display.note, notifier, facts.directory)
    loop.scribe.on_pause = lambda why: notifier.send(facts.directory, "paused", why, "status")
    try:
        with display.showing():
            _note_priors(campaign, scribe, priors)
            return loop.run(goal)
    except Exception as error:
        scribe.stopped(error)
        raise
    finally:
        watcher.close(HURRIED_CLOSE_S if session.stop.at_once() else CLOSE_S)


def _tell_loss(note: Callable[[str], None], notifier: Notifier, directory: Path, why: str) -> None:
    note(why)
    notifier.send(directory, "lost a lane", why, "status")


@dataclass(frozen=True, slots=True)
class _Confirmation:
    """Outcome of the final confirmation. A failed one does not suppress the summary."""

    found: Confirmed | None = None
    trouble: str = ""
    """Reason that a confirmation which should have run has no result."""
    stopped: Interrupted | None = None

    @classmethod
    def of(cls, session: Session) -> Self:
        try:
            return cls(_confirmed(session))
        except Interrupted as interrupted:
            return cls(trouble="it was stopped", stopped=interrupted)
        except AutoresearchError as error:
            return cls(trouble=str(error))

    def as_json(self) -> dict[str, Any]:
        found = self.found.model_dump(mode="json") if self.found else None
        return {"confirmed": found, "not_confirmed": self.trouble}

    def say_trouble(self, session: Session) -> None:
        """
        :raises Interrupted: if the user stopped it.
        """
        if self.trouble:
            session.say(
                f"not confirmed: {self.trouble}; the search's results are unaffected; retry with: "
                f"autoresearch confirm --campaign {session.campaign.directory}",
                "yellow",
            )
        if self.stopped is not None:
            raise self.stopped


def _confirmed(session: Session) -> Confirmed | None:
    """Confirm the incumbent on fresh runs.

    Return None if the baseline is still the incumbent, or if all runs of a command's config are the
    same, so that fresh runs add nothing.
    """
    evidence = session.campaign.evidence
    if evidence.incumbent_hash == evidence.baseline_hash:
        return None
    if session.own is not None and evidence.tally.runs_are_the_same:
        return None  # the baseline's note already says so
    usual = ConfirmAsked()
    latest = next(iter(session.campaign.history.newest(ConfirmedRow, 1)), None)
    seeds = usual.seeds if latest is None else max(usual.seeds, len(latest.found.seeds))
    return confirm(session, usual.model_copy(update={"seeds": seeds}))


def _note_priors(campaign: Campaign, scribe: Scribe, priors: Sequence[Prior]) -> None:
    """Record which earlier campaigns inform the proposers, if that changed."""
    notes = (event.why for event in campaign.history.events() if event.event == "note")
    note = note_on(priors, next((why for why in notes if why.startswith(NOTE)), None))
    if note is None:
        return
    if priors:  # the greeting already names them
        scribe.record(EventRow(at=timestamp(), event="note", why=note))
    else:
        scribe.take_note(note)


def chosen_settings(
    directory: Path, chosen: dict[str, Any], console: Console
) -> tuple[CampaignSettings, ProxyMenu]:
    """Return the settings and menu of the campaign there, or of a new one as the user chose them.

    :raises AutoresearchError: if they cannot be used, in one sentence.
    """
    refuse_imported(directory)
    if chosen.get("device") == AUTO:
        chosen = {name: value for name, value in chosen.items() if name != "device"}
    row = read_campaign_row(directory)
    if row is not None:
        return resumed_settings(directory, row, chosen), menu_of(row)
    begun = begun_settings(directory, chosen)
    source = begun.menu if begun else chosen.get("menu", DEFAULT_MENU)
    menu = load_menu(source)
    settings = begun or new_settings(
        menu, source, {**chosen, "device": choose_device(menu, chosen, console)}
    )
    if menu.trainer is None:
        _check_trainable(settings, menu)
    return settings, menu


def _check_trainable(settings: CampaignSettings, menu: ProxyMenu) -> None:
    """Refuse a device that does not exist, or a backend that cannot train the baseline on it."""
    from trainer.training.readiness import check_trainable  # noqa: PLC0415 (torch; only a new campaign asks)

    check_trainable(gpt(menu.baseline), settings.backend, settings.device, compile=settings.compile)


def _summary(campaign: Campaign, usage: TelemetrySummary) -> dict[str, Any]:
    evidence = campaign.evidence
    return {
        "campaign": str(campaign.directory),
        "iterations": evidence.iterations,
        "configs": len(evidence.configs),
        **believed_scores(evidence, campaign.menu.measure),
        "proposers": {
            kind: record.model_dump(mode="json")
            for kind, record in evidence.tally.track_records.items()
        },
        "credits": {
            arm: credit.model_dump(mode="json") for arm, credit in evidence.tally.credits.items()
        },
        "telemetry": usage.model_dump(mode="json") if usage.samples else None,
    }


def believed_scores(evidence: Evidence, measure: Measure) -> dict[str, Any]:
    """Return the estimated scores of the baseline and the incumbent, in the campaign's own unit and
    direction, and ``gain``, the difference."""
    noise = Noise.of(evidence.tally)
    baseline = ranked_config(evidence, evidence.baseline_hash)
    best = ranked_config(evidence, evidence.incumbent_hash)
    return {
        "unit": measure.unit,
        "direction": measure.direction,
        "sigma": noise.sigma if noise else None,
        "sigma_dof": evidence.dof,
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


def _conclude(
    session: Session, usage: TelemetrySummary, reached: str, found: Confirmed | None
) -> None:
    campaign = session.campaign
    evidence, measure = campaign.evidence, campaign.menu.measure
    noise = Noise.of(evidence.tally)
    if noise is not None:
        session.say(
            f"noise     sd {measure.size(noise.sigma)} {measure.short} a run, from {evidence.dof} "
            "degrees of freedom"
        )
    records = evidence.tally.track_records
    if evidence.tally.credits or len(records) > 1:
        kept = " · ".join(f"{kind} {record}" for kind, record in records.items())
        session.say(f"proposers {kept}")
    if credit := credit_text(evidence.tally.credits):
        session.say(f"credit    {credit}: standard deviations better than the search")
    if usage.samples:
        for line in usage.lines():
            session.say(f"gpu       {line}")
    for text in report(found) if found else ():
        session.console.print(text, soft_wrap=True, highlight=False)
    top = shlex.join(["autoresearch", "top", "--k", "10", "--campaign", str(campaign.directory)])
    session.say(
        f"done      {counted(evidence.iterations, 'iteration')}, "
        f"{counted(len(evidence.configs), 'config')}: {reached}; cull them with:\n  {top}"
    )
