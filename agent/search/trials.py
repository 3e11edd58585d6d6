"""Run a campaign's trials: assign ids and directories, and lose none.

A trial's spec.json is on disk before it starts, and its row is written after it ends. So a trial
with a directory and no row was in flight when the campaign last stopped. If it had finished, its
result is reused when the same spec is asked for; otherwise it is recorded as interrupted. Nothing
is dropped silently, and nothing counts twice.
"""

import threading
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Sequence,
    Set,
)
from pathlib import Path

from agent.search.stopping import Interrupted, StopRequest
from agent.search.trial import StartHook, Trial, TrialWatcher, left_s, read_orphaned_trials
from autoresearch.campaign_files import has_folder, make_folder, names
from autoresearch.files import writing_to
from autoresearch.layout import ORDERS_DIR, TRIALS_DIR, is_trial_id, nth_trial_id, trial_number
from autoresearch.words import timestamp
from trainer.executors.base import CANCEL_S, POLL_S, Executor, Finished, Job, TrialAborted
from trainer.isolation.trial_files import wall_s
from trainer.spec import AnyConfig, CurvePoint, PruneRule, TrialSpec
from trajectory.curves import read_curve
from trajectory.rows import Role, TrialRecord


class TrialRunner:
    """Turns (config, seed) into a TrialRecord, through an executor."""

    def __init__(
        self,
        directory: Path,
        template: Callable[[AnyConfig, int], TrialSpec],
        executor: Executor,
        accounted: Set[str],
        stop: StopRequest,
        watcher: TrialWatcher,
        hooks: Sequence[StartHook] = (),
    ) -> None:
        """Read the orphaned trials of the directory.

        :param directory: the campaign's ``trials`` folder; made if missing.
        :param template: the spec of a config and seed, its trial_id empty.
        :param accounted: ids of the trials that some row names.
        """
        self._directory = directory
        self._campaign = directory.parent
        with writing_to(directory):
            make_folder(self._campaign, f"{TRIALS_DIR}/{ORDERS_DIR}")
            # A trial gets a number above all of these, so nothing has its directory's name.
            on_disk = {name for name in names(self._campaign, TRIALS_DIR) if is_trial_id(name)}
        readable = {name for name in on_disk if has_folder(directory, name)}
        self._template = template
        self._executor = executor
        self.stop = stop
        self._watcher = watcher
        self._hooks = hooks
        self._running: dict[str, tuple[TrialSpec, CurvePoint]] = {}
        """Spec and latest point of each trial that runs."""
        stop.left_s = self.left_s
        self._curves: dict[str, list[CurvePoint]] = {}
        """Curves of references, which every race asks for again."""
        self.wake = threading.Event()
        """Set when a trial ends; set it to make :meth:`wait` return."""
        self.resumed: set[str] = set()
        """Trials from before the last stop whose results were used since."""
        self._unclaimed: dict[TrialSpec, Trial] = {}
        """Trials of this session that no row holds, by their spec without the id."""
        self._claimed: set[str] = set()
        self._last_number = max(map(trial_number, on_disk | accounted), default=0)
        self.orphaned = read_orphaned_trials(directory, readable - accounted)
        self.orphaned.unfinished += sorted(on_disk - readable - accounted)

    @property
    def places(self) -> int:
        """Number of concurrent trials."""
        return self._executor.places

    def spec(self, config: AnyConfig, seed: int, prune: PruneRule | None = None) -> TrialSpec:
        """Return the campaign's spec of a config and seed, its trial_id empty."""
        return self._template(config, seed).model_copy(update={"prune": prune})

    def run_all(
        self, specs: Iterable[tuple[TrialSpec, Role] | None]
    ) -> Generator[TrialRecord, None, None]:
        """Yield the records of all specs in order, running as many at once as there are lanes.

        With one lane, a spec is not asked for before the previous record was taken.

        :param specs: None among them means that the next spec depends on a record not yet taken;
            the iterator is asked again then.
        :raises Interrupted: between trials once a stop was asked for, or within one at the second
            request; the latter loses only the trials that run.
        :raises AutoresearchError: if the machinery fails, which is not a result, once the other
            running trials have ended.
        """
        left = iter(specs)
        running: deque[Trial] = deque()
        try:
            while True:
                with self.stop.deferred():
                    self._fill(running, left)
                    if not running:
                        return
                    while not running[0].job.done():
                        self.wait(running)
                        if not self.stop.asked:
                            self._fill(running, left)
                    record = self.ended(running.popleft())
                    self.claimed([record])
                yield record
        finally:
            # Once they have ended, their results are on disk for reuse.
            while left_running := [trial for trial in running if not trial.job.done()]:
                self.wait(left_running)
            for trial in running:
                trial.is_void()  # taking the result validates it, and discards a void one

    def _fill(self, running: deque[Trial], left: Iterator[tuple[TrialSpec, Role] | None]) -> None:
        """Start trials until every lane is busy; finished trials that wait for their turn hold no
        lane."""
        while True:
            ended = [trial for trial in running if trial.job.done()]
            if self.places == 1 and running:
                return
            if len(running) - len(ended) >= self.places or any(one.is_void() for one in ended):
                return  # a failure of the machinery would be repeated
            if (one := next(left, None)) is None:
                return
            running.append(self.begin(*one))

    def begin(self, spec: TrialSpec, role: Role) -> Trial:
        """Start the trial of this spec, its trial_id empty, or reuse its result; return at once.

        Two races that want the same trial share it until a row holds it.

        :raises Interrupted: once a stop was asked for, if the trial would have to run.
        """
        if spec not in self._unclaimed:
            self._unclaimed[spec] = self._started(spec, role)
        return self._unclaimed[spec]

    def claimed(self, records: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
        """Return those of the records that no row holds, for a row that is about to be written. A
        trial that two races wanted belongs to the row of the first that ends."""
        mine = tuple(record for record in records if record.trial_id not in self._claimed)
        self._claimed.update(record.trial_id for record in mine)
        self._unclaimed = {
            spec: trial
            for spec, trial in self._unclaimed.items()
            if trial.spec.trial_id not in self._claimed
        }
        return mine

    def _started(self, spec: TrialSpec, role: Role) -> Trial:
        if spec in self.orphaned.finished:
            trial_id, result = self.orphaned.finished.pop(spec)
            self.resumed.add(trial_id)
            trial_dir = self._directory / trial_id
            ended = Job(spec.model_copy(update={"trial_id": trial_id}), trial_dir)
            ended.succeed(Finished(result, wall_s(trial_dir, spec.limits.wall_s)))
            return Trial(ended.spec, role, ended)
        self.stop.check()
        self._last_number += 1
        trial_id = nth_trial_id(self._last_number)
        spec = spec.model_copy(update={"trial_id": trial_id})
        self._watcher.trial_started(spec, role)
        with self.stop.deferred():
            hooks = [hook(self._directory / trial_id) for hook in self._hooks]
            job = self._executor.submit(spec, self._directory / trial_id)
        trial = Trial(spec, role, job, hooks)
        job.when_done(lambda: setattr(trial, "ended_at", timestamp()))
        job.when_done(self.wake.set)  # after the end time is set
        return trial

    def wait(self, trials: Collection[Trial], timeout_s: float = POLL_S) -> None:
        """Wait until a trial ends, :attr:`wake` is set or the time is up, and report new curve
        points. A second stop request cancels all trials."""
        try:
            with self.stop.deferred():
                self._executor.wait(self.wake, timeout_s)
                self.wake.clear()
                for trial in trials:
                    self._report(trial)
                if self.stop.at_once():
                    for trial in trials:
                        trial.job.cancel()
        except BaseException:
            for trial in trials:
                trial.job.cancel()
            for trial in trials:
                trial.job.wait(CANCEL_S)
            raise

    def ended(self, trial: Trial) -> TrialRecord:
        """Return the record of a trial that is done.

        :raises Interrupted: if it was cancelled.
        :raises AutoresearchError: if the machinery failed.
        """
        if trial.record is not None:
            return trial.record
        self._report(trial)
        try:
            finished = trial.result()
        except TrialAborted as aborted:
            raise Interrupted("stopped at once; what was running is lost") from aborted
        spec = trial.spec
        trial.record = TrialRecord(
            trial_id=spec.trial_id,
            role=trial.role,
            config_hash=spec.config.config_hash,
            seed=spec.seed,
            result=finished.result,
            wall_s=finished.wall_s,
            place=finished.place,
            # the callback may come a moment after the job is done
            at=None if finished.place is None else trial.ended_at or timestamp(),
        )
        self._watcher.trial_ended(trial.record)
        return trial.record

    def _report(self, trial: Trial) -> None:
        """Report a trial's lane once known, and its new curve points."""
        place = trial.job.place()
        if place is not None and place != trial.place:
            self._watcher.trial_placed(trial.spec.trial_id, place)
        trial.place = place
        trial_id, latest = trial.spec.trial_id, None
        for point in trial.job.points():
            latest = point
            self._watcher.trial_point(trial_id, point)
        if trial.job.done():
            self._running.pop(trial_id, None)
        elif latest is not None:
            self._running[trial_id] = trial.spec, latest

    def left_s(self) -> float | None:
        """Return the expected seconds until the last running trial ends, by their paces; None if
        unknown."""
        known = [left_s(spec, point) for spec, point in self._running.values()]
        return max((one for one in known if one is not None), default=None)

    def curve(self, trial_id: str) -> list[CurvePoint]:
        """Return a trial's learning curve; empty if it left no readable one."""
        if trial_id not in self._curves:
            self._curves[trial_id] = read_curve(self._campaign, trial_id)
        return self._curves[trial_id]
