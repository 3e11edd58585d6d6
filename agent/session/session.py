"""Open and close together everything that a session with a campaign needs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer
from rich.console import Console

from agent.menu.files import ProxyMenu, menu_of
from agent.search.campaign import Campaign
from agent.search.campaign_start import read_campaign_row, resumed_settings
from agent.search.stopping import Interrupted, StopRequest
from agent.search.trial import StartHook, TrialWatcher
from agent.search.trials import TrialRunner
from agent.session.console import say
from agent.session.lane_opening import device_telemetry, open_lanes
from agent.session.own_trainer import OwnTrainer, one_script
from agent.session.places import existing_campaign, refuse_imported
from agent.session.trust import check_trust, remember_begun
from agent.settings.campaign import CampaignSettings
from agent.settings.environment import read_environment
from autoresearch import screen
from autoresearch.campaign_files import has_folder
from autoresearch.errors import CampaignError
from autoresearch.files import naming_full_disk
from autoresearch.layout import TELEMETRY_FILE, TRIALS_DIR
from trainer.executors.base import Executor, Meter
from trainer.isolation.scratch import clear_left
from trainer.memory.estimate import MemoryChoice, choose_memory
from trainer.schema import gpt
from trainer.telemetry import Sampler, metering


@dataclass(frozen=True, slots=True)
class Session:
    """A campaign open for work on this machine. Make it with :meth:`opened`."""

    console: Console
    campaign: Campaign
    executor: Executor
    hooks: tuple[StartHook, ...]
    """Hooks called at the start and the end of each trial."""
    sampler: Sampler
    memory: MemoryChoice
    stop: StopRequest
    own: OwnTrainer | None
    """The menu's command, if it names one."""
    telemetry: str
    """Quantities that are sampled from the device."""

    @classmethod
    @contextmanager
    def opened(
        cls, directory: Path, settings: CampaignSettings, menu: ProxyMenu, console: Console
    ) -> Iterator[Session]:
        """Create or resume the campaign in ``directory``, with everything that runs its trials.

        :raises AutoresearchError: if any of it is unavailable, in one sentence.
        """
        screen.outlive()
        stop = StopRequest()
        with interruptible(console), ExitStack() as resources:
            resources.enter_context(naming_full_disk(directory))
            resources.enter_context(stop.listening())
            own = OwnTrainer.of(settings.menu, menu, directory)
            command, script = (own.command, own.script) if own else (None, None)
            executor, settings, corpus = open_lanes(
                resources, directory, settings, console, command=command
            )
            campaign = resources.enter_context(
                Campaign(
                    directory,
                    settings,
                    menu,
                    corpus,
                    sandbox=executor.describe(),
                    history_url=read_environment().history_url,
                    command=command,
                    script=script,
                )
            )
            remember_begun(campaign)
            here = settings.executor == "local"
            if has_folder(directory, TRIALS_DIR):
                clear_left(directory / TRIALS_DIR)
            telemetry = device_telemetry(settings.device, executor.places, here=here)
            note = partial(say, console, style="yellow")
            samples = Sampler(telemetry, directory / TELEMETRY_FILE, on_note=note)
            sampler = resources.enter_context(samples)
            if here:
                executor.meter_by(partial(_meter, resources, settings.device, sampler))
            yield cls(
                console=console,
                campaign=campaign,
                executor=executor,
                hooks=tuple(_hooks(campaign, own)),
                sampler=sampler,
                memory=_memory(campaign, executor.places if here else 1),
                stop=stop,
                own=own,
                telemetry=telemetry.description,
            )

    def runner(self, watcher: TrialWatcher) -> TrialRunner:
        """Return the runner of the campaign's trials."""
        return TrialRunner(
            self.campaign.directory / TRIALS_DIR,
            self.campaign.trial_spec,
            self.executor,
            self.campaign.results.trial_ids,
            self.stop,
            watcher,
            self.hooks,
        )

    def say(self, text: str, style: str = "") -> None:
        """Print one line for the user."""
        say(self.console, text, style)


def _meter(resources: ExitStack, device: str, sampler: Sampler, gpu: str | None) -> Meter:
    """Return the meter of a lane, for as long as ``resources`` are held.

    :param sampler: of the campaign's device.
    :param gpu: the lane's own GPU, by its name in CUDA_VISIBLE_DEVICES; None if it has none.
    """
    if gpu is not None:
        sampler = resources.enter_context(Sampler(device_telemetry(device, gpu=gpu), None))
    return partial(metering, sampler)


@contextmanager
def interruptible(console: Console) -> Iterator[None]:
    """Print how to resume if the user stopped the work, and exit with code 130."""
    try:
        yield
    except Interrupted as interrupted:
        again = shlex.join(["autoresearch", *sys.argv[1:]])
        say(console, f"{interrupted}. Resume with:\n  {again}")
        raise typer.Exit(130) from None


@contextmanager
def resumed(campaign: Path | None, *, as_json: bool, trust: bool) -> Iterator[Session]:
    """Open a session for more work on an existing campaign, with its own settings.

    :param campaign: its directory; None: the latest.
    :param trust: whether the user trusts whoever made it.
    :param as_json: whether messages go to standard error, because standard output holds the answer.
    :raises CampaignError: if the campaign was imported, or holds no row.
    """
    directory = existing_campaign(campaign)
    refuse_imported(directory)
    row = read_campaign_row(directory)
    if row is None:
        raise CampaignError(f"{directory} holds an empty journal; start with: autoresearch loop")
    settings = resumed_settings(directory, row, {})
    console, menu = Console(stderr=as_json), menu_of(row)
    check_trust(directory, row, settings, menu, {}, console, trust=trust)
    with Session.opened(directory, settings, menu, console) as session:
        yield session


def _hooks(campaign: Campaign, own: OwnTrainer | None) -> Iterator[StartHook]:
    if own is not None:
        yield one_script(lambda: campaign.refuse_another_script(own.now(campaign.directory)))


def _memory(campaign: Campaign, places: int) -> MemoryChoice:
    """
    :param places: number of concurrent trials on this machine.
    """
    settings = campaign.settings
    if not campaign.trainer.reads_corpus:
        return MemoryChoice(None, "the memory that a command needs is unknown")
    choice = choose_memory(
        vocab_size=campaign.corpus.info.vocab_size,
        backend=settings.backend,
        device=settings.device,
        average=settings.average is not None,
        trial_limit_gib=settings.trial_memory_gib,
        reserve_gib=read_environment().memory_reserve_gib,
        places=places,
    )
    if settings.executor != "local":
        return choice  # the GPUs are in other machines
    return choice.for_defaults(gpt(campaign.menu.baseline), campaign.menu.name, settings.device)
