"""One night: a campaign of the product, in a world whose truth is known.

Campaign, loop, race, judge, rails, journal and history are the product's own, on disk as ever (in
memory where /dev/shm is, so that no sync is waited for). Only the executor is simulated, and the
night says what no campaign can know: how good its reference truly is.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from agent.judge import Assessment
from agent.menu.rails import Rails
from agent.proposers.base import Proposer
from agent.search.campaign import Campaign
from agent.search.campaign_settings import new_settings
from agent.search.goal import Goal
from agent.search.loop import Loop
from agent.search.stopping import StopRequest
from agent.search.trials import TrialRunner
from agent.search.turns.asking import AskedNow
from autoresearch.layout import TRIALS_DIR
from autoresearch.values import Frozen
from bench.simulator.executor import SimulatedExecutor
from bench.simulator.world import World
from trainer.corpus import Corpus
from trainer.spec import Config, CorpusInfo, CurvePoint, Place, TrialFailed, TrialSpec
from trajectory.history.tables import MEMORY
from trajectory.ranking import ranked_incumbent
from trajectory.rows import BaselineRow, IterationRow, Role, TrialRecord
from trajectory.rules import Rules

MakeProposer = Callable[[Rails], Proposer]
SHM = Path("/dev/shm")


class Stage(Frozen):
    """How far a night had come after an iteration; 0 for the baseline."""

    iteration: int
    runs: int
    """Trials so far, the baseline's among them."""
    train_s: float
    """Simulated seconds that those took."""
    truth: float
    """Of the reference, without noise."""


class Night(Frozen):
    """What came of one night."""

    world: str
    seed: int
    best: float
    """Best known truth of the world."""
    stages: tuple[Stage, ...]
    keeps: int
    false_keeps: int
    """Kept and truly no better than the reference of that iteration."""
    refused: int
    """Proposals that the rails refused."""
    failures: dict[str, int]
    """Trials that ended without a score, by status."""
    told_gain: float | None
    """Over the baseline, as ``top`` tells it of the incumbent; positive is better."""
    ask_ms: float
    """Median of what proposing took."""
    seconds: float
    """That the night itself took."""

    @property
    def true_gain(self) -> float:
        """Of the last reference over the baseline; positive is better."""
        return self.stages[0].truth - self.stages[-1].truth

    @property
    def runs(self) -> int:
        """Trials, the baseline's among them."""
        return self.stages[-1].runs

    def regret(self, iteration: int) -> float:
        """Truth of the reference after so many iterations, less the best known."""
        return self._last(lambda stage: stage.iteration <= iteration).truth - self.best

    def regret_at_runs(self, runs: int) -> float:
        """The same after so many trials."""
        return self._last(lambda stage: stage.runs <= runs).truth - self.best

    def regret_at_s(self, train_s: float) -> float:
        """The same after so many simulated seconds of training."""
        return self._last(lambda stage: stage.train_s <= train_s).truth - self.best

    def _last(self, counts: Callable[[Stage], bool]) -> Stage:
        return next((one for one in reversed(self.stages) if counts(one)), self.stages[0])


def night(
    world: World,
    make_proposer: MakeProposer,
    *,
    seed: int,
    iterations: int = 100,
    rules: Rules | None = None,
    settings: Mapping[str, Any] | None = None,
    runs: int | None = None,
    lanes: int = 1,
) -> Night:
    """Search in this world.

    :param seed: the campaign's: of what is proposed, and of its trials. Nights of one seed see the
        same noise on the same configs, whoever proposes.
    :param rules: of the judge; None: those the product ships with.
    :param settings: the campaign's that are not to be the product's defaults.
    :param runs: also end once so many trials were run.
    :param lanes: trials at once.
    """
    began = time.monotonic()
    rules = Rules() if rules is None else rules
    with _campaign(world, {**(settings or {}), "seed": seed}) as campaign:
        watcher = _Account(world, campaign)
        with SimulatedExecutor(world, lanes) as executor:
            loop = _loop(campaign, make_proposer, rules, executor, watcher)
            loop.run(Goal(iterations=iterations, trials=runs))
        told = ranked_incumbent(campaign.evidence)
        delta = told.delta_vs_baseline if told is not None else None
        return Night(
            world=world.name,
            seed=seed,
            best=world.best,
            stages=tuple(watcher.stages),
            keeps=watcher.keeps,
            false_keeps=watcher.false_keeps,
            refused=watcher.refused,
            failures=watcher.failures,
            told_gain=None if delta is None else -delta,
            ask_ms=1000 * median(watcher.asks_s or [0.0]),
            seconds=time.monotonic() - began,
        )


def _loop(
    campaign: Campaign,
    make_proposer: MakeProposer,
    rules: Rules,
    executor: SimulatedExecutor,
    watcher: _Account,
) -> Loop:
    """The product's own, at work on this campaign."""
    rails = Rails(
        campaign.menu,
        budget=campaign.settings.budget,
        max_changes=campaign.settings.max_changes,
    )
    stop = StopRequest()
    return Loop(
        campaign=campaign,
        proposer=make_proposer(rails),
        rails=rails,
        rules=rules,
        runner=TrialRunner(
            campaign.directory / TRIALS_DIR,
            campaign.trial_spec,
            executor,
            campaign.history.trial_ids(),
            stop,
            watcher,
        ),
        watcher=watcher,
        stop=stop,
        meter=_NoMeter(),
        asking=AskedNow(),  # proposing takes no simulated time either
    )


@contextmanager
def _campaign(world: World, chosen: Mapping[str, Any]) -> Iterator[Campaign]:
    """A campaign in a directory that is gone afterwards."""
    shared = SHM if SHM.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="autoresearch-night-", dir=shared) as scratch:
        directory = Path(scratch)
        with Campaign(
            directory / "campaign",
            new_settings(world.menu, world.menu.name, chosen),
            world.menu,
            _no_corpus(directory),
            sandbox="simulated",
            history_url=MEMORY,
        ) as campaign:
            yield campaign


def _no_corpus(directory: Path) -> Corpus:
    """One token to train on and one held out, which nobody reads."""
    info = CorpusInfo(
        name="simulated",
        sha256="0" * 64,
        heldout_sha256="0" * 64,
        tokenizer="bytes",
        vocab_size=257,
        separator_id=256,
        dtype="uint16",
        documents=2,
        duplicates=0,
        train_documents=1,
        train_tokens=1,
        train_bytes=1,
        heldout_documents=1,
        heldout_tokens=1,
        heldout_bytes=1,
    )
    path = directory / "tokens.bin"
    path.write_bytes(bytes(2))
    tokens = np.memmap(path, dtype=np.uint16, mode="r", shape=(1,))
    return Corpus(info=info, train=tokens, heldout=tokens, directory=directory)


@dataclass(slots=True)
class _Account:
    """Looks on, and keeps the account that the campaign itself cannot."""

    world: World
    campaign: Campaign
    stages: list[Stage] = field(default_factory=list)
    keeps: int = 0
    false_keeps: int = 0
    refused: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    asks_s: list[float] = field(default_factory=list)
    runs: int = 0
    train_s: float = 0.0

    def note(self, text: str) -> None:
        """Nobody reads it."""

    def proposing(self, iteration: int) -> None:
        """Nobody waits for it."""

    def assessed(self, assessment: Assessment) -> None:
        """Nobody asks."""

    def trial_started(self, spec: TrialSpec, role: Role) -> None:
        """It has ended by now."""

    def trial_placed(self, trial_id: str, place: Place) -> None:
        """Nor where it ran."""

    def trial_point(self, trial_id: str, point: CurvePoint) -> None:
        """Nobody draws it."""

    def trial_ended(self, record: TrialRecord) -> None:
        self.runs += 1
        self.train_s += record.wall_s
        if isinstance(record.result, TrialFailed):
            status = record.result.status
            self.failures[status] = self.failures.get(status, 0) + 1

    def baseline_measured(self, row: BaselineRow) -> None:
        """The night begins where all of its seeds are measured."""
        self.stages[:] = [self._stage(0)]

    def iteration_ended(self, row: IterationRow) -> None:
        self.asks_s.append(row.proposer.latency_s)
        self.refused += row.config is None
        before = self.stages[-1].truth
        self.stages.append(self._stage(len(self.stages)))
        if row.decision.action == "keep" and row.config is not None:
            self.keeps += 1
            self.false_keeps += self._truth(row.config) >= self._truth_of(
                row.decision.reference_hash, before
            )

    def _stage(self, iteration: int) -> Stage:
        return Stage(
            iteration=iteration,
            runs=self.runs,
            train_s=self.train_s,
            truth=self._truth(self.campaign.reference),
        )

    def _truth_of(self, config_hash: str | None, otherwise: float) -> float:
        known = self.campaign.evidence.configs.get(config_hash or "")
        return otherwise if known is None else self._truth(known.config)

    def _truth(self, config: Config) -> float:
        """Of a config that was trained, which therefore has one."""
        truth = self.world.truth(config)
        assert truth is not None, f"{config.config_hash} was kept and cannot be trained"
        return truth


class _NoMeter:
    """Simulated trials draw nothing."""

    def mark(self) -> float:
        return 0.0

    def energy_wh(self, since_s: float, until_s: float | None = None) -> float | None:
        return None
