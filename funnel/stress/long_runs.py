"""Long runs: what the stress test and the ladder share.

Each is a trial like the loop's, and its row is written when it has ended; between two of them a
person may stop or pause the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
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
    """None where nothing measured it, where the run had ended before this start, and where several
    ran at once."""


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
        return self._judged(self.runner.run_spec(spec, role), spec, began)

    def trained(
        self, specs: Sequence[TrialSpec], role: Role, begins: Callable[[int], None]
    ) -> Iterator[LongRun]:
        """The runs of these specs, in this order, as many at once as there are places.

        :param begins: told the place of each in the sequence, before it begins.
        """
        began: list[float] = []

        def asked() -> Iterator[tuple[TrialSpec, Role]]:
            for number, spec in self.in_turn(specs):
                begins(number - 1)
                began.append(time.monotonic())
                yield spec, role

        for number, trial in enumerate(self.runner.run_all(asked())):
            yield self._judged(trial, specs[number], began[number])

    def _judged(self, trial: TrialRecord, spec: TrialSpec, began: float) -> LongRun:
        verdict = judge_run(
            self.runner.curve(trial.trial_id),
            trial.result,
            steps=spec.steps or 0,
            warmup=spec.config.lr_warmup if isinstance(spec.config, Config) else 0,
        )
        # Of several at once nobody can say which drew what.
        unknown = trial.trial_id in self.runner.taken_up or self.runner.places > 1
        return LongRun(trial, verdict, None if unknown else self.meter.energy_wh(began))

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
