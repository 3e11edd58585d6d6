"""Long runs, one after the other: what the stress test and the ladder share.

Each is a trial like the loop's, and its row is written when it has ended; between two of them a
person may stop or pause the work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent.search.scribe import Scribe
from agent.search.trials import TrialRunner
from funnel.stress.verdicts import judge_run
from trainer.spec import Config, TrialSpec
from trainer.telemetry import Meter
from trajectory.rows import Role, StressVerdict, TrialRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LongRun:
    """What came of one."""

    trial: TrialRecord
    verdict: StressVerdict
    energy_wh: float | None
    """None where nothing measured it, or where the run had ended before this start."""


@dataclass(frozen=True, slots=True)
class LongRunner:
    """Trains and judges them."""

    runner: TrialRunner
    meter: Meter
    scribe: Scribe

    def in_turn(self, runs: Sequence[T]) -> Iterator[tuple[int, T]]:
        """Every run with its number from 1, each once nobody wants a stop or a pause.

        :raises Interrupted: when a person stopped it.
        """
        for number, run in enumerate(runs, start=1):
            self.scribe.stop.check()
            self.scribe.wait_while_paused()
            yield number, run

    def train(self, spec: TrialSpec, role: Role) -> LongRun:
        """The run of this spec, whose budget counts steps or tokens; taken up where it had finished
        before the last stop."""
        began = time.monotonic()
        trial = self.runner.run_spec(spec, role)
        verdict = judge_run(
            self.runner.curve(trial.trial_id),
            trial.result,
            steps=spec.steps or 0,
            warmup=spec.config.lr_warmup if isinstance(spec.config, Config) else 0,
        )
        taken_up = trial.trial_id in self.runner.taken_up
        return LongRun(trial, verdict, None if taken_up else self.meter.energy_wh(began))

    def account_for_superseded(self, spec: TrialSpec) -> None:
        """A run that had finished under other settings, of threads or limits say, will not be asked
        for any more."""

        def same(other: TrialSpec) -> bool:
            mine = (spec.config, spec.seed, spec.budget)
            return (other.config, other.seed, other.budget) == mine

        self.scribe.interrupted(
            self.runner.leftovers.give_up(same),
            "finished before the campaign last stopped, under other settings, and was run again",
        )
