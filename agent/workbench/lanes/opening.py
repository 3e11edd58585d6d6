"""Open what runs a session's trials: the lanes that its settings ask for, and the corpus."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from agent.menu.files import ProxyMenu
from agent.search.campaign_settings import keep_lanes
from agent.settings.campaign import CampaignSettings
from agent.settings.environment import data_dir
from agent.workbench.console import say
from agent.workbench.lanes.choice import chosen_lanes
from autoresearch.layout import JOURNAL_FILE
from trainer.corpus import Corpus, open_corpus, prepare
from trainer.executors.base import Executor
from trainer.executors.choice import choose_executor
from trainer.spec import Command
from trajectory.lock import CampaignLock


@dataclass(frozen=True, slots=True)
class OpenLanes:
    """An open executor, and the settings found while opening it."""

    executor: Executor
    settings: CampaignSettings
    """Settings with the number of lanes, and on a cluster the kind of device."""
    corpus: Corpus | None
    """None if a command brings its own text."""
    were_measured: bool

    @property
    def here(self) -> bool:
        """Whether trials run on this machine."""
        return self.settings.executor == "local"

    def keep(self, directory: Path) -> None:
        """Write the best number of lanes to the campaign, which exists by now."""
        lanes = self.settings.lanes
        if self.were_measured and self.settings.device == "cpu" and isinstance(lanes, int):
            keep_lanes(directory, lanes)


class LaneOpening:
    """Opens what runs the trials of a campaign, for as long as ``resources`` are held."""

    def __init__(
        self,
        resources: ExitStack,
        settings: CampaignSettings,
        menu: ProxyMenu,
        console: Console,
        *,
        command: Command | None,
    ) -> None:
        """
        :param command: the command that trials run; None for the built-in trainer.
        """
        self._resources = resources
        self._settings = settings
        self._menu = menu
        self._console = console
        self._command = command

    def opened(self, directory: Path) -> OpenLanes:
        """
        :param directory: the campaign's. No measurement runs beside the campaign's own trials.
        :raises AutoresearchError: if lanes or corpus are unavailable, in one sentence.
        """
        settings = self._settings
        if settings.lanes == "auto" and settings.executor == "local":
            return self._open_best_number(directory)
        lanes = None if settings.lanes == "auto" else settings.lanes
        if settings.executor == "local":  # the executor starts while the corpus is read
            executor = self._executor(lanes)
            corpus = self._corpus()
        else:  # the executor sends the corpus to its nodes
            corpus = self._corpus()
            executor = self._executor(lanes, directory, corpus)
        if executor.kind is not None:
            settings = settings.model_copy(update={"device_kind": executor.kind})
            for name, why in executor.refused.items():
                say(self._console, f"without   {name}: {why}", "yellow")
        return OpenLanes(executor, settings, corpus, were_measured=False)

    def _open_best_number(self, directory: Path) -> OpenLanes:
        corpus = self._corpus()
        _refuse_if_locked(directory)
        found = chosen_lanes(
            self._settings,
            self._menu,
            corpus,
            allow_unsandboxed=self._settings.allow_unsandboxed,
            say=lambda text: say(self._console, text),
        )
        settings = self._settings.model_copy(update={"lanes": found})
        return OpenLanes(self._executor(found), settings, corpus, were_measured=True)

    def _corpus(self) -> Corpus | None:
        return None if self._command else prepared_corpus(self._settings, self._console)

    def _executor(
        self, lanes: int | None, campaign: Path = Path(), corpus: Corpus | None = None
    ) -> Executor:
        return self._resources.enter_context(
            choose_executor(
                self._settings.executor,
                allow_unsandboxed=self._settings.allow_unsandboxed,
                command=self._command,
                lanes=lanes,
                device=self._settings.device,
                kind=self._settings.device_kind,
                campaign=campaign,
                corpus=None if corpus is None else corpus.directory,
            )
        )


def _refuse_if_locked(directory: Path) -> None:
    """
    :raises CampaignLockedError: if another process is writing the campaign there.
    """
    if (directory / JOURNAL_FILE).exists():
        with CampaignLock(directory):
            pass


def prepared_corpus(settings: CampaignSettings, console: Console) -> Corpus:
    """Open the prepared corpus that the settings name, or prepare the source they name.

    :raises CorpusError: if neither works, in one sentence.
    """
    directory = Path(settings.corpus).expanduser()
    if (directory / "meta.json").is_file():
        return open_corpus(directory.absolute())
    with console.status(f"preparing the corpus {settings.corpus}"):
        return prepare(
            [settings.corpus],
            cache_dir=data_dir() / "corpora",
            tokenizer=settings.tokenizer,
            heldout_bytes=settings.heldout_bytes,
        )
