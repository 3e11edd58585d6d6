"""Run plans on several lanes by a simulated clock, with stops and kills as in real campaigns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.search.campaign import Campaign
from agent.search.stopping import Interrupted, StopRequest
from agent.search.trial import Watcher
from agent.search.trials import TrialRunner
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.world import Outcome
from trainer.schema import TrialFailed, TrialOk, TrialSpec
from trajectory.journal import read_rows
from trajectory.rows import EventRow, Role, Row, TrialRecord


class Killed(BaseException):
    """Simulate SIGKILL within one process: nothing is cleaned up."""


@dataclass
class TimedWorld:
    """A world of runs whose results contain their duration."""

    result: Callable[[TrialSpec], TrialOk | TrialFailed]
    name: str = "timed"
    failure_s: float = 1.0

    def outcome(self, spec: TrialSpec) -> Outcome:
        return self.result(spec), ()


@dataclass
class Onlooker(Watcher):
    """Show nothing, and stop the work once this many trials have ended."""

    stop: StopRequest
    stops_after: int | None = None
    kills: bool = False
    running: set[str] = field(default_factory=set)
    most: int = 0
    """The most trials that ran at once."""

    def trial_started(self, spec: TrialSpec, role: Role) -> None:
        self.running.add(spec.trial_id)
        self.most = max(self.most, len(self.running))

    def trial_ended(self, record: TrialRecord) -> None:
        self.running.discard(record.trial_id)
        if self.stops_after is not None:
            self.stops_after -= 1
            if self.stops_after == 0 and self.kills:
                raise Killed
            if self.stops_after == 0:
                self.stop.ask()

    def note(self, text: str) -> None: ...
    def run_ended(self, *row: Any) -> None: ...
    def run_begins(self, *what: Any) -> None: ...


@dataclass
class Plan:
    """Hold work on one campaign that is started and resumed."""

    result: Callable[[TrialSpec], TrialOk | TrialFailed]
    work: Callable[[TrialRunner, Onlooker], Any]
    """The function that does the work."""
    campaign: Campaign

    def done(
        self, lanes: int, *, stops_after: int | None = None, kills: bool = False
    ) -> tuple[Any, Onlooker]:
        """Do the work on this many lanes; return its result and its watcher."""
        stop = StopRequest()
        onlooker = Onlooker(stop, stops_after, kills)
        with SimulatedExecutor(TimedWorld(self.result), lanes) as executor:  # type: ignore[arg-type]
            runner = TrialRunner(
                self.campaign.directory / "trials",
                self.campaign.trial_spec,
                executor,
                self.campaign.results.trial_ids,
                stop,
                onlooker,
            )
            return self.work(runner, onlooker), onlooker

    def stopped(self, lanes: int, *, after: int, kills: bool) -> None:
        """Start the work, and stop it after this many trials."""
        try:
            self.done(lanes, stops_after=after, kills=kills)
        except (Interrupted, Killed):
            return
        raise AssertionError("it was not stopped")

    def rows(self) -> list[Row]:
        """Return the journal's rows."""
        return list(read_rows(self.campaign.directory / "trajectory.jsonl"))

    def check_no_trial_lost(self) -> None:
        """Check that every trial on disk is in exactly one row."""
        rows = self.rows()
        told = [row.trial.trial_id for row in rows if hasattr(row, "trial")]
        lost = [one for row in rows if isinstance(row, EventRow) for one in row.trial_ids]
        everything = [*told, *lost]
        assert len(set(everything)) == len(everything)
        assert set(everything) == _on_disk(self.campaign.directory / "trials")


def _on_disk(trials: Path) -> set[str]:
    return {path.name for path in trials.glob("t*")}
