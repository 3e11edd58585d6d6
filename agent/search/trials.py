"""Runs trials for a campaign: gives them ids and directories, and loses none of them.

A trial's spec.json is on disk before it starts and the row that holds its result comes after it
ends, so whatever has a directory and is named by no row was in flight when the campaign last
stopped. What had finished is taken up again where the same spec is asked for; what had not is
reported as interrupted. Nothing is dropped in silence, and nothing counts twice.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol, TypeAlias

from agent.search.orphaned_trials import read_orphaned_trials
from agent.search.scribe import timestamp
from agent.search.stopping import Interrupted, StopRequest
from autoresearch.errors import AutoresearchError
from autoresearch.files import writing_to
from autoresearch.layout import is_trial_id, nth_trial_id, trial_number
from trainer.executors.base import CANCEL_S, LOOK_S, Executor, Finished, Job, TrialAborted
from trainer.isolation.trial_files import read_curve, wall_s
from trainer.spec import AnyConfig, CurvePoint, Place, PruneRule, TrialSpec
from trajectory.rows import Role, TrialRecord

EndHook: TypeAlias = Callable[[Finished], Finished]
"""Takes how a trial ended, and returns what is to be recorded of it."""
StartHook: TypeAlias = Callable[[Path], EndHook]
"""Is called right before a trial starts, with its directory."""


class TrialWatcher(Protocol):
    """Whoever shows a running trial to a person."""

    def trial_started(self, spec: TrialSpec, role: Role) -> None: ...
    def trial_placed(self, trial_id: str, place: Place) -> None:
        """It had to wait for a place, or several are at work: it runs there now."""

    def trial_point(self, trial_id: str, point: CurvePoint) -> None: ...
    def trial_ended(self, record: TrialRecord) -> None: ...
    def trial_given_up(self, trial_id: str) -> None:
        """It was cancelled, since nobody wants it, and is over."""


class Trial:
    """One that was begun: a job, or what was taken up from before the last stop."""

    def __init__(
        self, spec: TrialSpec, role: Role, work: Job | Finished, hooks: Iterable[EndHook] = ()
    ) -> None:
        self.spec = spec
        self.role = role
        self._work = work
        self._hooks = hooks
        self._finished = work if isinstance(work, Finished) else None
        self._told: Place | None = None
        self.ended_at: str | None = None
        """ISO 8601; None of one that was taken up."""
        if not isinstance(work, Finished):
            work.when_done(self._note_end)

    def _note_end(self) -> None:
        self.ended_at = timestamp()

    @property
    def runs(self) -> bool:
        """Whether it was begun by this process, and not taken up."""
        return not isinstance(self._work, Finished)

    def done(self) -> bool:
        """Whether it has ended."""
        return isinstance(self._work, Finished) or self._work.done()

    def result(self) -> Finished:
        """See :meth:`Job.result`."""
        if self._finished is None:
            assert not isinstance(self._work, Finished)
            finished = self._work.result()
            for hook in self._hooks:
                finished = hook(finished)
            self._finished = finished
        return self._finished

    def is_void(self) -> bool:
        """Whether, having ended, it has no result."""
        try:
            self.result()
        except AutoresearchError:
            return True
        return False

    def points(self) -> tuple[CurvePoint, ...]:
        """See :meth:`Job.points`."""
        return () if isinstance(self._work, Finished) else self._work.points()

    def newly_placed(self) -> Place | None:
        """Where it runs, once it is known and again where it had to move; None where nothing of
        that is new."""
        place = None if isinstance(self._work, Finished) else self._work.place()
        if place == self._told:
            return None
        self._told = place
        return place

    def cancel(self) -> None:
        """See :meth:`Job.cancel`."""
        if not isinstance(self._work, Finished):
            self._work.cancel()

    def await_end(self, timeout_s: float) -> None:
        """Until it has ended, or for so long."""
        if not isinstance(self._work, Finished):
            self._work.wait(timeout_s)


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
        """
        :param directory: the campaign's ``trials`` folder; made if missing.
        :param template: the spec of a config and seed, its trial_id empty.
        :param accounted: ids of the trials that some row names.
        """
        with writing_to(directory):
            directory.mkdir(parents=True, exist_ok=True)
            on_disk = {p.name for p in directory.iterdir() if is_trial_id(p.name)}
        self._directory = directory
        self._template = template
        self._executor = executor
        self.stop = stop
        self._watcher = watcher
        self._hooks = hooks
        self._curves: dict[str, list[CurvePoint]] = {}
        """The curves of references, which every race asks for again."""
        self.wake = threading.Event()
        """Set where a trial ends; whoever wants :meth:`wait` to return sets it too."""
        self.resumed: set[str] = set()
        """Trials run before the last stop whose results were used since."""
        self._last_number = max(map(trial_number, on_disk | accounted), default=0)
        self.orphaned = read_orphaned_trials(directory, on_disk - accounted)

    def undisturbed(self) -> AbstractContextManager[None]:
        """While several trials may run: something is always at work that a signal must not cut
        short, so that signals are counted alone. With one place nothing is deferred."""
        return self.stop.deferred() if self.places > 1 else nullcontext()

    @property
    def places(self) -> int:
        """Trials that run at once."""
        return self._executor.places

    @property
    def places_by_kind(self) -> Mapping[str, int]:
        """See :attr:`Executor.places_by_kind`."""
        return self._executor.places_by_kind

    def spec(self, config: AnyConfig, seed: int, prune: PruneRule | None = None) -> TrialSpec:
        """The campaign's own of a config and seed, its trial_id empty."""
        return self._template(config, seed).model_copy(update={"prune": prune})

    def run(
        self, config: AnyConfig, seed: int, role: Role, prune: PruneRule | None = None
    ) -> TrialRecord:
        """One trial, taken up from before the last stop where it had finished.

        :raises Interrupted: between trials once a stop was asked for, or within one once a second
            was; the latter loses that trial and no other.
        :raises AutoresearchError: when the machinery fails, which is no result.
        """
        return self.run_spec(self.spec(config, seed, prune), role)

    def run_spec(self, spec: TrialSpec, role: Role) -> TrialRecord:
        """The trial of this spec, its trial_id empty; see :meth:`run`."""
        with self.stop.deferred():
            trial = self.begin(spec, role)
            while not trial.done():
                self.wait([trial])
            return self.ended(trial)

    def run_all(
        self, specs: Iterable[tuple[TrialSpec, Role] | None]
    ) -> Generator[TrialRecord, None, None]:
        """Their records, in this order, with as many of them at once as there are places; where
        there is one, a spec is not asked for before the record ahead of it was taken.

        :param specs: None among them: no further one is known before another record was taken, so
            that they are asked again then.
        :raises AutoresearchError: as :meth:`run`, once what else is running has ended.
        """
        left = iter(specs)
        running: deque[Trial] = deque()
        try:
            while True:
                with self.stop.deferred():
                    self._fill(running, left)
                    if not running:
                        return
                    while not running[0].done():
                        self.wait(running)
                        if not self.stop.asked:
                            self._fill(running, left)
                    record = self.ended(running.popleft())
                yield record
        finally:
            self._let_end(running)

    def _fill(self, running: deque[Trial], left: Iterator[tuple[TrialSpec, Role] | None]) -> None:
        """Every place; what has ended takes none, though it waits for its turn to be told."""
        while self._has_room(running) and (one := next(left, None)) is not None:
            running.append(self.begin(*one))

    def _has_room(self, running: Collection[Trial]) -> bool:
        if self.places == 1:
            return not running
        ended = [trial for trial in running if trial.done()]
        if any(trial.is_void() for trial in ended):
            return False  # the machinery failed: it would fail again
        return len(running) - len(ended) < self.places

    def begin(self, spec: TrialSpec, role: Role) -> Trial:
        """Have the trial of this spec run, its trial_id empty, or take it up from before the last
        stop; returns at once.

        :raises Interrupted: once a stop was asked for, where it is to be run.
        """
        resumed = self.orphaned.finished.pop(spec, None)
        if resumed is not None:
            trial_id, result = resumed
            self.resumed.add(trial_id)
            trial_wall_s = wall_s(self._directory / trial_id, spec.limits.wall_s)
            spec = spec.model_copy(update={"trial_id": trial_id})
            return Trial(spec, role, Finished(result, trial_wall_s))
        self.stop.check()
        self._last_number += 1
        trial_id = nth_trial_id(self._last_number)
        spec = spec.model_copy(update={"trial_id": trial_id})
        self._watcher.trial_started(spec, role)
        with self.stop.deferred():
            hooks = [hook(self._directory / trial_id) for hook in self._hooks]
            job = self._executor.submit(spec, self._directory / trial_id)
        trial = Trial(spec, role, job, hooks)
        job.when_done(self.wake.set)  # after its own: who is woken finds when it ended
        return trial

    def wait(self, trials: Collection[Trial], timeout_s: float = LOOK_S) -> None:
        """Until one of them ends, somebody sets :attr:`wake`, or for so long; tell what their
        curves have meanwhile. A second request to stop ends them all."""
        try:
            with self.stop.deferred():
                self._executor.wait(self.wake, timeout_s)
                self.wake.clear()
                for trial in trials:
                    self._tell(trial)
                if self.stop.at_once():
                    for trial in trials:
                        trial.cancel()
        except BaseException:
            for trial in trials:
                trial.cancel()
            for trial in trials:
                trial.await_end(CANCEL_S)
            raise

    def ended(self, trial: Trial) -> TrialRecord:
        """The record of a trial that is done.

        :raises Interrupted: where it was cancelled.
        :raises AutoresearchError: when the machinery failed.
        """
        self._tell(trial)
        try:
            finished = trial.result()
        except TrialAborted as aborted:
            raise Interrupted("stopped at once; what was running is lost") from aborted
        spec = trial.spec
        record = TrialRecord(
            trial_id=spec.trial_id,
            role=trial.role,
            config_hash=spec.config.config_hash,
            seed=spec.seed,
            result=finished.result,
            wall_s=finished.wall_s,
            place=finished.place,
            # The callback may come a moment after the job is done.
            at=None if finished.place is None else trial.ended_at or timestamp(),
        )
        self._watcher.trial_ended(record)
        return record

    def given_up(self, trial: Trial) -> None:
        """A trial that was cancelled is over; whatever came of it counts for nothing."""
        trial.is_void()  # who asks for a result has it checked
        self._watcher.trial_given_up(trial.spec.trial_id)

    def _tell(self, trial: Trial) -> None:
        """Where it runs, once that is known, and what its curve has that is new."""
        place = trial.newly_placed()
        if place is not None:
            self._watcher.trial_placed(trial.spec.trial_id, place)
        for point in trial.points():
            self._watcher.trial_point(trial.spec.trial_id, point)

    def _let_end(self, trials: Collection[Trial]) -> None:
        """Wait until they have ended: what they find is on disk then, to be taken up later."""
        while not all(trial.done() for trial in trials):
            self.wait([trial for trial in trials if not trial.done()])
        for trial in trials:
            trial.is_void()  # who asks for a result has it checked, and taken back where it is void

    def curve(self, trial_id: str) -> list[CurvePoint]:
        """The learning curve a trial left; empty where it left none that can be read."""
        if trial_id not in self._curves:
            self._curves[trial_id] = read_curve(self._directory / trial_id)
        return self._curves[trial_id]
