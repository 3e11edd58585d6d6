"""What no campaign can know of itself: how good its reference truly is, and what that took."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.judge import Assessment
from agent.search.campaign import Campaign
from autoresearch.values import Frozen
from tests.support.simulated.world import World
from trainer.spec import Config, CurvePoint, Place, TrialFailed, TrialSpec, gpt
from trajectory.rows import BaselineRow, IterationRow, Role, TrialRecord


class Stage(Frozen):
    """How far a night had come after an iteration; 0 for the baseline."""

    iteration: int
    runs: int
    """Trials so far, the baseline's among them."""
    train_s: float
    """Simulated seconds that those took."""
    truth: float
    """Of the reference, without noise."""


@dataclass(slots=True)
class Account:
    """A watcher of the loop (:class:`agent.search.watcher.Watcher`)."""

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

    def trial_given_up(self, trial_id: str) -> None: ...

    def trial_ended(self, record: TrialRecord) -> None:
        self.runs += record.wall_s > 0  # what was remembered took no time and is no run
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
        kept = row.decision.action == "keep"
        self.keeps += kept
        truth = None if row.config is None else self.world.truth(gpt(row.config))
        if truth is None:
            return
        above = truth - self._truth_of(row.decision.reference_hash, before)
        self.false_keeps += kept and above >= 0

    def _stage(self, iteration: int) -> Stage:
        return Stage(
            iteration=iteration,
            runs=self.runs,
            train_s=self.train_s,
            truth=self._truth(gpt(self.campaign.reference)),
        )

    def _truth_of(self, config_hash: str | None, otherwise: float) -> float:
        known = self.campaign.evidence.configs.get(config_hash or "")
        return otherwise if known is None else self._truth(gpt(known.config))

    def _truth(self, config: Config) -> float:
        """Of a config that was trained, which therefore has one."""
        truth = self.world.truth(config)
        assert truth is not None, f"{config.config_hash} was kept and cannot be trained"
        return truth
