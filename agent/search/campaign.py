"""A campaign on disk: created once, resumed at will, written by one process at a time."""

from contextlib import ExitStack
from pathlib import Path

from agent.menu.edits import with_edits
from agent.menu.files import ProxyMenu
from agent.search.campaign_start import first_row, read_campaign_row, tokens_without_holdout
from agent.settings.campaign import CampaignSettings, seeds_of
from agent.settings.environment import read_environment
from autoresearch.campaign_files import (
    has_file,
    make_folder,
    make_shared_folder,
    replace_file,
    sweep,
)
from autoresearch.closing import Closing
from autoresearch.errors import CampaignError, HistoryError, MachineryError
from autoresearch.files import writing_to
from autoresearch.layout import (
    COMPILED_DIR,
    HISTORY_FILE,
    IN_FLIGHT_DIR,
    JOURNAL_FILE,
    SETTINGS_FILE,
)
from autoresearch.words import is_utf8
from trainer.corpus import Corpus
from trainer.schema import (
    AnyConfig,
    Command,
    Limits,
    RunSchedule,
    ScriptInfo,
    TrialSpec,
    trainer_of,
)
from trajectory.history.store import History
from trajectory.journal import Journal
from trajectory.lock import CampaignLock
from trajectory.reading import Results
from trajectory.rows import CampaignRow, EvaluationProtocol, Row, SpaceRow


class Campaign(Closing):
    """One search, opened for writing. A context manager; closing releases the lock."""

    def __init__(
        self,
        directory: Path,
        settings: CampaignSettings,
        menu: ProxyMenu,
        corpus: Corpus | None,
        *,
        sandbox: str,
        history_url: str | None = None,
        command: Command | None = None,
        script: ScriptInfo | None = None,
    ) -> None:
        """Create the campaign in ``directory``, or resume the one it holds.

        :param corpus: None if a command brings its own text.
        :param sandbox: how trials are confined, for the record.
        :param command: the menu's training command, if any; ``script`` describes its code.
        :raises CampaignLockedError: if another process is writing the campaign.
        :raises CampaignError: if the corpus differs from the one the campaign was measured with, or
            is too small for a holdout split that the settings ask for.
        """
        self.directory = directory
        self.settings = settings
        self.menu = menu
        self.command = command
        self.trainer = trainer_of(command)
        self._corpus = corpus
        self._script = script
        self._reserve_gib = read_environment().memory_reserve_gib
        self.is_new: bool
        """Whether it begins now."""
        self.note: str | None
        """A message to the user about how the campaign was opened, if there is one."""
        with ExitStack() as resources:
            _lock(directory, resources)
            if self._makes_code:
                with writing_to(directory):
                    make_shared_folder(directory, COMPILED_DIR)
            self.journal = resources.enter_context(Journal(directory / JOURNAL_FILE))
            self.row = self._first_row(sandbox)
            self.results = Results(directory / JOURNAL_FILE)
            self.evidence = self.results.evidence
            self.menu = with_edits(menu, self.results.rows_of(SpaceRow))
            self.history = resources.enter_context(
                History(history_url or directory / HISTORY_FILE, directory / JOURNAL_FILE)
            )
            self.history.catch_up()
            self._resources = resources.pop_all()

    def _first_row(self, sandbox: str) -> CampaignRow:
        """Return the first row, which agrees with the settings; write it for a new campaign."""
        row = read_campaign_row(self.directory)
        if row is not None:
            self._refuse_other_evaluation(row)
        self._train_tokens = (
            tokens_without_holdout(self.corpus) if self.settings.reserve_holdout else None
        )
        if row is not None and row.train_tokens not in (None, self._train_tokens):
            raise CampaignError(
                f"the trials of {self.directory} train on the first {row.train_tokens:,} tokens of "
                f"the corpus, and this version would train on {self._train_tokens:,}; resume with "
                "the version that created it, or start another campaign"
            )
        self.is_new = row is None
        self.note = self._keep_settings(is_new=self.is_new)
        if row is None:
            row = first_row(
                self.settings,
                self.menu,
                None if self._corpus is None else self._corpus.info,
                self._script,
                train_tokens=self._train_tokens,
                sandbox=sandbox,
            )
            self.journal.append(row)
        return row

    def write(self, row: Row) -> None:
        """Write one row to the journal, on disk before anything else happens. The row counts from
        then on, even before it is indexed.

        :raises MachineryError: if the journal cannot be written.
        """
        self.journal.append(row)
        self.results.add(row)

    def index(self) -> str | None:
        """Index the rows written since the last call, and return the trouble if that fails.

        An index that cannot be written, as when a database server is down, does not stop the
        campaign, because the journal holds every row. A later call adds the missing rows.
        """
        try:
            self.history.catch_up()
        except (HistoryError, MachineryError) as error:
            return f"the history lags behind the journal: {error}"
        return None

    @property
    def corpus(self) -> Corpus:
        """The corpus that the built-in trainer trains on.

        :raises CampaignError: if a command trains, which brings its own text.
        """
        if self._corpus is None:
            raise CampaignError(
                f"{self.directory} trains with a command that brings its own text, which "
                "autoresearch does not know; this is for campaigns of the built-in trainer"
            )
        return self._corpus

    @property
    def baseline_seeds(self) -> range:
        """Seeds of the baseline's runs. Every race reuses them in order."""
        return seeds_of(self.settings.seed, "search")[: self.settings.baseline_seeds]

    @property
    def reference(self) -> AnyConfig:
        """The config that a proposal edits and is compared with."""
        baseline = self.menu.baseline
        if self.settings.reference == "baseline" or self.evidence.incumbent_hash is None:
            return baseline
        return self.evidence.configs[self.evidence.incumbent_hash].config

    @property
    def prunes(self) -> bool:
        """Whether a trial's curve may end it early."""
        return self.trainer.prunes

    @property
    def _makes_code(self) -> bool:
        return self.trainer.caches_code(self.settings.device)

    def is_short_run(self, spec: TrialSpec) -> bool:
        """Return whether the spec is of one of the loop's own trials, not of a long run or a
        confirmation."""
        of_the_search = spec.seed in seeds_of(self.settings.seed, "search")
        mine = self.trial_spec(spec.config, spec.seed)
        return of_the_search and (spec.evaluation, spec.texts) == (mine.evaluation, mine.texts)

    def trial_spec(self, config: AnyConfig, seed: int) -> TrialSpec:
        """Return the spec of one trial, its id still empty."""
        settings, corpus = self.settings, self._corpus
        limits = Limits(
            wall_s=settings.trial_wall_s,
            memory_gib=settings.trial_memory_gib,
            reserve_gib=self._reserve_gib,
        )
        if self.menu.trainer is not None and self.menu.trainer.file_gib is not None:
            file_bytes = int(self.menu.trainer.file_gib * 2**30)
            limits = limits.model_copy(update={"file_bytes": file_bytes})
        cache = str((self.directory / COMPILED_DIR).absolute()) if self._makes_code else None
        return TrialSpec(
            trial_id="",
            config=config,
            seed=seed,
            corpus_dir="" if corpus is None else str(corpus.directory),
            corpus_sha256="" if corpus is None else corpus.info.sha256,
            **dict(self.schedule(config)),
            backend=settings.backend,
            device=settings.device,
            threads=settings.threads,
            cudnn_attention=settings.cudnn_attention,
            compile_cache=cache,
            train_tokens=self._train_tokens,
            limits=limits,
            command=self.command,
            scored_apart=self.trainer.reads_corpus and bool(self.menu.code_knobs),
        )

    def schedule(self, config: AnyConfig) -> RunSchedule:
        """Return the schedule of a config's trials. Its cooldown is at most all of their steps: a
        budget in tokens may be fewer steps than the cooldown."""
        schedule = self.settings.schedule
        steps = schedule.budget.steps(config.tokens_per_step)
        if steps is None:
            return schedule
        cooldown = min(schedule.cooldown_steps, steps)
        return schedule.model_copy(update={"cooldown_steps": cooldown})

    def refuse_another_script(self, now: ScriptInfo, row: CampaignRow | None = None) -> None:
        """Refuse to mix scores of two scripts: a command's script is part of the evaluation
        protocol.

        :param row: the campaign's first row, if it is not loaded yet.
        :raises CampaignError: if the script differs from the one the campaign began with.
        """
        begun = (row or self.row).script
        if begun is not None and begun != now:
            raise CampaignError(
                f"the code in {now.directory} is another than {self.directory} was begun with "
                f"({begun.sha256[:12]} in {begun.files} files then, {now.sha256[:12]} in "
                f"{now.files} now), and scores of two scripts are not of one scale; put it back, "
                "or start another campaign"
            )

    def close(self) -> None:
        self._resources.close()

    def _keep_settings(self, *, is_new: bool) -> str | None:
        """Write campaign.toml if it is missing; return a message to the user if it was lost."""
        path = self.directory / SETTINGS_FILE
        if not is_new and has_file(self.directory, SETTINGS_FILE):
            return None
        with writing_to(self.directory):
            replace_file(self.directory, SETTINGS_FILE, self.settings.to_toml(), durable=True)
        if is_new:
            return None
        return (
            f"{path} was missing and is rebuilt from the journal's first row; what the row does "
            "not hold (proposer, threads, limits of a trial) has its default"
        )

    def _refuse_other_evaluation(self, row: CampaignRow) -> None:
        """Refuse settings that differ from the first row, even if campaign.toml was edited
        meanwhile. The lock is held."""
        if self._script is not None:
            self.refuse_another_script(self._script, row)
        protocol = list(EvaluationProtocol.model_fields)
        if row.script is not None:
            protocol.remove("backend")  # a command has no backend
        changed = row.differences(self.settings, protocol)
        if row.menu_sha256 != self.menu.sha256:
            changed.append("its menu is another")
        if row.corpus is not None and self._corpus is not None and row.corpus != self._corpus.info:
            was, now = row.corpus, self._corpus.info
            changed.append(
                f"its corpus is {was.name} ({was.sha256[:12]}) there and {now.name} "
                f"({now.sha256[:12]}) here"
            )
        if changed:
            raise CampaignError(
                f"{self.directory} was created with other settings: {'; '.join(changed)}; restore "
                f"{SETTINGS_FILE} and the corpus, or start another campaign"
            )


def _lock(directory: Path, resources: ExitStack) -> None:
    """Create and lock the directory, and remove files that an earlier process left half-written."""
    if not is_utf8(str(directory.absolute())):
        raise CampaignError(
            f"the directory {str(directory)!r} is not valid UTF-8, so trials cannot "
            "be given its path; choose another one with --campaign"
        )
    with writing_to(directory):
        make_folder(directory)
    resources.enter_context(CampaignLock(directory))
    with writing_to(directory):
        sweep(directory, name=SETTINGS_FILE)
        sweep(directory, IN_FLIGHT_DIR)
