"""Record facts that no campaign can know: its reference's true score, and the cost of it."""

from dataclasses import dataclass, field

from agent.search.campaign import Campaign
from agent.search.trial import Watcher
from autoresearch.values import Frozen
from tests.support.simulated.world import World
from trainer.schema import Config, TrialFailed, gpt
from trajectory.rows import BaselineRow, IterationRow, TrialRecord


class Stage(Frozen):
    """Hold the state of a night after an iteration; 0 is the baseline."""

    iteration: int
    runs: int
    """Trials so far, the baseline's included."""
    train_s: float
    """Simulated seconds of these trials."""
    truth: float
    """The reference's true score, without noise."""


@dataclass(slots=True)
class Account(Watcher):
    """Follow the loop and record its progress."""

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

    def trial_ended(self, record: TrialRecord) -> None:
        self.runs += record.wall_s > 0  # a remembered result took no time and is not a run
        self.train_s += record.wall_s
        if isinstance(record.result, TrialFailed):
            status = record.result.status
            self.failures[status] = self.failures.get(status, 0) + 1

    def baseline_measured(self, row: BaselineRow) -> None:
        """Start the record once all of the baseline's seeds are measured."""
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
        """Return the true score of a config that was trained, which therefore has one."""
        truth = self.world.truth(config)
        assert truth is not None, f"{config.config_hash} was kept and cannot be trained"
        return truth
