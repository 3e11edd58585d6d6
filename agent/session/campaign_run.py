"""Run the loop: choose settings, create or resume a campaign, and work on it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from agent.loggers.background import (
    CLOSE_S,
    HURRIED_CLOSE_S,
    BackgroundLogger,
    LoggingWatcher,
    LogTarget,
    log_targets,
)
from agent.loggers.base import CampaignFacts
from agent.loggers.git_branch import GitBranch, refuse_built_in
from agent.loggers.notices import KeepNotices, Notifier
from agent.menu.files import ProxyMenu, load_menu, menu_of
from agent.menu.rails import Rails
from agent.proposers.choice import Choice, choose_proposer
from agent.proposers.priors import NOTE, Prior, earlier_campaign, note_on, read_priors
from agent.search.campaign import Campaign
from agent.search.campaign_start import (
    new_settings,
    read_campaign_row,
    refuse_lost_journal,
    resumed_settings,
)
from agent.search.loop import Loop
from agent.search.scribe import Scribe
from agent.search.stopping import Goal, Interrupted, StopRequest
from agent.search.trial import Watchers
from agent.session.conclusion import conclude
from agent.session.console import say
from agent.session.display import Display
from agent.session.greeting import greet
from agent.session.lane_opening import AUTO, choose_device
from agent.session.places import refuse_imported
from agent.session.session import Session
from agent.session.trust import check_trust
from agent.settings.campaign import DEFAULT_MENU, CampaignSettings
from agent.settings.environment import read_environment
from autoresearch.campaign_files import make_folder, make_shared_folder
from autoresearch.errors import AutoresearchError, MachineryError, SpecError
from autoresearch.files import writing_to
from autoresearch.layout import LOG_FILE, ORDERS_DIR, RESULT_FILE, TRIALS_DIR, WARM_UP_DIR
from autoresearch.words import timestamp
from trainer.code_check import CodeRunner
from trainer.executors.base import Executor, TrialAborted
from trainer.executors.lanes import Lanes
from trainer.isolation.scratch import clear
from trainer.schema import AnyConfig, Budget, RunSchedule, TrialFailed, gpt, refuse_fp8
from trajectory.rows import EventRow


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Choices for one session, which no campaign stores."""

    program: Path | None = None
    """File of research directions for the language model."""
    priors: Sequence[Path] = ()
    """Earlier campaigns that the proposers learn from."""
    log: Sequence[str] = ()
    """Options ``--log``."""
    git: bool = False
    """Whether to commit each keep to a branch of the script's repository."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the language model's command, by their name in the environment's settings."""
    target_tokens: Callable[[str], int | None] = lambda _menu_name: None
    """Returns the token budget of the target whose proxies the menu of a name has, if any."""
    notifier: Notifier = field(default_factory=Notifier)
    """Sends the notices."""
    confirming: bool = False
    """Whether to end with a confirmation, if something was kept."""
    as_json: bool = False
    verbose: bool = False
    """Whether to print the details of a script's command."""
    trust: bool = False
    """Whether the user trusts whoever made the campaign."""


def run_campaign(
    directory: Path, chosen: dict[str, Any], goal: Goal, options: SessionOptions
) -> None:
    """Create or resume the campaign, and work on it until its goal is reached.

    The user's choices are checked before anything is created.
    """
    console = Console(stderr=options.as_json)
    settings, menu = chosen_settings(directory, chosen, console, trust=options.trust)
    if options.git:
        refuse_built_in(menu)
    rails = Rails(menu, budget=settings.budget, max_changes=settings.max_changes)
    known = _priors(options.priors, directory, menu)
    targets = log_targets(options.log)
    notifier = options.notifier
    choice = choose_proposer(
        settings,
        read_environment(**options.model),
        rails,
        directory=directory,
        program=options.program,
        priors=len(known),
    )
    with (
        _notify_on_error(notifier, directory, console),
        Session.opened(directory, settings, menu, console) as session,
        closing(choice),
    ):
        rails.memory = session.memory.model
        unsandboxed = session.campaign.settings.allow_unsandboxed
        rails.run_code = CodeRunner(price=settings.code_price, allow_unsandboxed=unsandboxed)
        branch = GitBranch(session.campaign) if options.git else None
        greet(
            session,
            f"proposer  {choice.description}",
            *(f"prior     {one}" for one in known),
            *([branch.note] if branch else ()),
            target_tokens=options.target_tokens(menu.name),
            verbose=options.verbose,
            iters=goal.iterations,
        )
        if line := warm_up(session.campaign, session.executor, session.stop):
            session.say(line)
        reached = _work(session, rails, choice, goal, known, targets, notifier, branch)
        result = conclude(
            session, reached, branch, confirming=options.confirming, as_json=options.as_json
        )
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


def _work(
    session: Session,
    rails: Rails,
    choice: Choice,
    goal: Goal,
    priors: tuple[Prior, ...],
    targets: Sequence[LogTarget],
    notifier: Notifier,
    branch: GitBranch | None,
) -> str:
    campaign = session.campaign
    display = Display(session.console, campaign, goal, places=session.executor.places)
    scribe = Scribe(campaign, session.stop, display.note)
    facts = CampaignFacts.of(campaign.directory, campaign.row)
    loggers = [target.started(facts) for target in targets]
    if branch is not None:
        loggers.append(BackgroundLogger("git", lambda: branch))
    logging = LoggingWatcher(loggers, on_trouble=scribe.take_note)
    watcher = Watchers(display, logging, KeepNotices(notifier, facts.directory))
    loop = Loop(
        campaign=campaign,
        proposer=choice.proposer,
        rails=rails,
        rules=campaign.settings.rules(),
        runner=session.runner(watcher),
        watcher=watcher,
        meter=session.sampler,
        asks_early=choice.is_slow,
        priors=priors,
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
        logging.close(HURRIED_CLOSE_S if session.stop.at_once() else CLOSE_S)


def _tell_loss(note: Callable[[str], None], notifier: Notifier, directory: Path, why: str) -> None:
    note(why)
    notifier.send(directory, "lost a lane", why, "status")


def _priors(chosen: Sequence[Path], directory: Path, menu: ProxyMenu) -> tuple[Prior, ...]:
    """Return the priors that the user chose, else a compatible earlier campaign beside this one."""
    if chosen:
        return read_priors([path for path in chosen if path != Path("none")], menu, directory)
    earlier = earlier_campaign(directory, menu)
    with suppress(AutoresearchError):  # damaged, and nobody asked for it
        return read_priors([earlier] if earlier else [], menu, directory)
    return ()


def _note_priors(campaign: Campaign, scribe: Scribe, priors: Sequence[Prior]) -> None:
    """Record which earlier campaigns inform the proposers, if that changed."""
    notes = (event.why for event in campaign.results.newest(EventRow) if event.event == "note")
    note = note_on(priors, next((why for why in notes if why.startswith(NOTE)), None))
    if note is None:
        return
    if priors:  # the greeting already names them
        scribe.record(EventRow(at=timestamp(), event="note", why=note))
    else:
        scribe.take_note(note)


def chosen_settings(
    directory: Path, chosen: dict[str, Any], console: Console, *, trust: bool = False
) -> tuple[CampaignSettings, ProxyMenu]:
    """Return the settings and menu of the campaign there, or of a new one as the user chose them.

    :raises AutoresearchError: if they cannot be used, in one sentence.
    """
    refuse_imported(directory)
    if chosen.get("device") == AUTO:
        chosen = {name: value for name, value in chosen.items() if name != "device"}
    row = read_campaign_row(directory)
    if row is not None:
        settings, menu = resumed_settings(directory, row, chosen), menu_of(row)
        check_trust(directory, row, settings, menu, chosen, console, trust=trust)
        if menu.trainer is None:
            refuse_fp8(gpt(menu.baseline).precision, settings.backend)
        return settings, menu
    refuse_lost_journal(directory)
    source = chosen.get("menu", DEFAULT_MENU)
    menu = load_menu(source)
    settings = new_settings(
        menu, source, {**chosen, "device": choose_device(menu, chosen, console)}
    )
    if menu.trainer is None:
        from trainer.training.readiness import check_trainable  # noqa: PLC0415 (loads torch)

        for precision in _precisions(menu):
            refuse_fp8(precision, settings.backend)
        check_trainable(gpt(menu.baseline), settings.backend, settings.device)
    return settings, menu


def _precisions(menu: ProxyMenu) -> list[str]:
    """Return the number formats that the menu offers to the built-in trainer."""
    knob = menu.knobs.get("precision")
    if knob is None:
        return [gpt(menu.baseline).precision]
    return [str(value) for value in knob.domain.ends]


STEPS = 2


def warm_up(campaign: Campaign, executor: Executor, stop: StopRequest) -> str | None:
    """Run two steps of the menu's defaults in a directory that no row names, and two in each other
    number format that the menu offers, and check the GPU's kernels in each.

    Return a line for the user, or None if nothing ran: on a CPU, with a command, or if the baseline
    was already measured, which compiled everything.

    :raises Interrupted: once a second stop was requested.
    :raises MachineryError: if a trial ends without a measurement, for whatever reason.
    """
    menu = campaign.menu
    if campaign.evidence.configs or not campaign.trainer.makes_code(campaign.settings.device):
        return None
    wall_s = _run(campaign, executor, stop, menu.baseline, "the menu's defaults")
    for value in _precisions(menu):
        if value != gpt(menu.baseline).precision:
            # Where the GPU or the shape has no such format, each such config is refused by itself.
            with suppress(SpecError):
                config = menu.apply(menu.baseline, {"precision": value})
                wall_s += _run(campaign, executor, stop, config, f"the menu's precision {value}")
    return f"warm-up   {wall_s:.0f} s of trials compiled the kernels; they are not counted"


def _run(
    campaign: Campaign, executor: Executor, stop: StopRequest, config: AnyConfig, what: str
) -> float:
    """Run a few steps of a config and return the seconds; ``what`` names it in an error."""
    trial_dir = campaign.directory / TRIALS_DIR / WARM_UP_DIR
    horizon = campaign.settings.horizon_steps
    schedule = RunSchedule(budget=Budget(amount=STEPS), horizon_steps=horizon)
    spec = campaign.trial_spec(config, campaign.baseline_seeds[0]).model_copy(
        update={"trial_id": WARM_UP_DIR, "check_kernels": True, **dict(schedule)}
    )
    with stop.deferred():
        with writing_to(campaign.directory):
            make_shared_folder(campaign.directory, f"{TRIALS_DIR}/{WARM_UP_DIR}")
            make_folder(campaign.directory, f"{TRIALS_DIR}/{ORDERS_DIR}")
            clear(trial_dir / RESULT_FILE)
        try:
            ended = executor.run(spec, trial_dir, should_stop=stop.at_once)
        except TrialAborted as aborted:
            raise Interrupted("stopped at once, before the first trial") from aborted
    if isinstance(ended.result, TrialFailed):
        raise MachineryError(
            f"the warm-up trial of {what} ended as {ended.result.status} ({ended.result.message});"
            f" see {trial_dir / LOG_FILE} and run `autoresearch doctor`"
        )
    return ended.wall_s
