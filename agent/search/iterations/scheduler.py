"""Schedule the trials of several iterations on the executor's lanes.

One thread decides everything. It gives each iteration's trial to the executor, waits for the first
one to end, and resumes the iteration that wanted it with the result.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from agent.search.iterations.iteration import Iteration
from agent.search.iterations.speculation import Speculation
from agent.search.race import Outcome, Wanted
from agent.search.stopping import Interrupted, StopRequest
from agent.search.trial import Trial
from agent.search.trials import TrialRunner
from autoresearch.errors import AutoresearchError
from trainer.spec import TrialSpec
from trajectory.rows import TrialRecord

PATIENCE_S = 1.0
"""Seconds an idle lane waits for an open proposal before it starts a speculative trial. Cancelling
a speculative trial later costs the lane a start."""


@dataclass(slots=True)
class Scheduler:
    """Schedules the trials of iterations in flight."""

    runner: TrialRunner
    stop: StopRequest
    iterations: list[Iteration] = field(default_factory=list)
    trouble: AutoresearchError | None = None
    """Error that keeps anything more from starting. Running trials end and are on disk then."""
    deferral: ExitStack = field(default_factory=ExitStack)
    """Held while a trial runs, since it is worth finishing: signals are only counted. Whoever uses
    a scheduler enters it, so that no deferral outlives the work."""
    speculation: Speculation = field(init=False)
    _idle_since: float | None = None
    """Time since which a lane has been idle, by this process's clock."""
    _has_speculated: bool = False
    """Whether nothing has happened since the last speculation."""
    _wanted_by: dict[Trial, list[Iteration]] = field(default_factory=dict)
    """Running trials. Two races may want the same trial of their reference."""
    _measured: deque[tuple[Iteration, TrialRecord]] = field(default_factory=deque)
    """Iterations whose trial has ended, with its record. They advance one at a time, because the
    row of one may replace the reference of the next."""
    _of_references: dict[TrialSpec, TrialRecord] = field(default_factory=dict)
    """Finished trials of references that are in no row yet."""
    _shared: set[str] = field(default_factory=set)
    """Trials that two races use."""
    _recorded: set[str] = field(default_factory=set)
    """Shared trials that a row already holds."""

    def __post_init__(self) -> None:
        self.speculation = Speculation(self.runner)

    @property
    def is_held(self) -> bool:
        """Whether nothing more may start."""
        return self.stop.asked or self.trouble is not None

    @property
    def _running(self) -> list[Trial]:
        """All trials that have not ended, wanted or speculative."""
        return [*self._wanted_by, *self.speculation.running, *self.speculation.leaving]

    @contextmanager
    def outlasting(self) -> Iterator[None]:
        """Keep running trials alive after an error within; it is raised once they have ended."""
        try:
            yield
        except AutoresearchError as error:
            self.trouble = self.trouble or error

    def start(self, iteration: Iteration) -> None:
        """Add an iteration: its first trial starts, or waits for a lane."""
        self.iterations.append(iteration)
        if iteration.outcome is None:
            self._advance(iteration, None)

    def speculate(self, *, more_comes: bool) -> None:
        """Start speculative trials on lanes that nothing else needs.

        Call it once everything else that can start has started.

        :param more_comes: a proposal is being asked for; wait for it a little first.
        """
        places = self.runner.places - len(self._running)
        if places <= 0:
            self._idle_since = None
        if places <= 0 or self.is_held or self._measured or not self._wanted_by:
            return
        now = time.monotonic()
        self._idle_since = now if self._idle_since is None else self._idle_since
        if self._has_speculated or (more_comes and now - self._idle_since < PATIENCE_S):
            return
        self._has_speculated = True
        known = {_unnamed(trial.spec) for trial in self._wanted_by} | self._of_references.keys()
        with self.outlasting():
            self.speculation.begin(self.iterations, places, known)

    def finished(self, *, more_comes: bool, meanwhile: Callable[[], None]) -> list[Iteration]:
        """Wait for the next event and return the iterations that are over, often none.

        The caller writes the row of each before the next call: until then no other race advances.

        :param more_comes: a proposal is being asked for, so waiting makes sense without a running
            trial.
        :param meanwhile: work to do before waiting.
        :raises Interrupted: if a stop was asked for and nothing runs any more.
        :raises AutoresearchError: if the machinery failed and nothing runs any more.
        """
        over = self._advance_measured()
        if over:
            return over
        done = [trial for trial in self._running if trial.done()]
        if not done:
            with self.outlasting():
                meanwhile()
        if not self._running and (self.is_held or not more_comes):
            self.raise_trouble()
            self.stop.check()
        if not done:
            self.runner.wait(self._running)
            done = [trial for trial in self._running if trial.done()]
        for trial in done:
            self._end(trial)
        return self._advance_measured()

    def own_trials(self, outcome: Outcome) -> tuple[TrialRecord, ...]:
        """Return an outcome's trials that no other row holds. A shared trial belongs to the row of
        the first race that ends."""
        mine = tuple(trial for trial in outcome.trials if trial.trial_id not in self._recorded)
        recorded = {trial.trial_id for trial in mine}
        self._recorded |= recorded & self._shared
        self._of_references = {
            spec: record
            for spec, record in self._of_references.items()
            if record.trial_id not in recorded
        }
        return mine

    def _advance_measured(self) -> list[Iteration]:
        """Advance measured iterations until one is over, and return those that are."""
        over = self._over()
        while self._measured and not over:
            self._advance(*self._measured.popleft())
            over = self._over()
        return over

    def _over(self) -> list[Iteration]:
        if not self._running:
            self.deferral.close()
        over = [iteration for iteration in self.iterations if iteration.outcome is not None]
        self.iterations = [iteration for iteration in self.iterations if iteration.outcome is None]
        return over

    def raise_trouble(self) -> None:
        """Raise the pending error, if any.

        :raises AutoresearchError: the error that stopped new trials.
        """
        if self.trouble is not None:
            raise self.trouble

    def _end(self, trial: Trial) -> None:
        self._has_speculated = False
        if trial not in self._wanted_by:
            with self.outlasting():
                self.speculation.end(trial)
            return
        iterations = self._wanted_by.pop(trial)
        with self.outlasting():
            record = self.runner.ended(trial)
            if record.role == "reference":
                self._of_references[_unnamed(trial.spec)] = record
            self._measured.extend((iteration, record) for iteration in iterations)

    def _advance(self, iteration: Iteration, record: TrialRecord | None) -> None:
        """Resume an iteration with a record, up to the next trial that it wants."""
        self._has_speculated = False
        with self.outlasting():
            try:
                # A generator that has not begun is sent None.
                wanted = (
                    next(iteration.schedule) if record is None else iteration.schedule.send(record)
                )
            except StopIteration as ended:
                iteration.outcome = ended.value
                self.speculation.drop(iteration)
                return
            iteration.then = wanted.then
            self._begin(iteration, wanted)

    def _begin(self, iteration: Iteration, wanted: Wanted) -> None:
        spec = self.runner.spec(wanted.config, wanted.seed, wanted.prune)
        known = self._of_references.get(spec)
        if known is not None:
            self._shared.add(known.trial_id)
            self._advance(iteration, known)
            return
        for trial, iterations in self._wanted_by.items():
            if _unnamed(trial.spec) == spec:
                self._shared.add(trial.spec.trial_id)
                iterations.append(iteration)
                return
        early = self.speculation.taken(spec)
        if isinstance(early, TrialRecord):
            if early.role == "reference":
                self._of_references[spec] = early  # another race may want it too
            self._advance(iteration, early)
            return
        if early is not None:
            self._wanted_by[early] = [iteration]
            return
        if self.trouble is not None:
            return
        if not self._running:
            self.deferral.enter_context(self.stop.deferred())
        try:
            self._wanted_by[self.runner.begin(spec, wanted.role)] = [iteration]
        except Interrupted:
            return  # as asked: it stays in flight for the next session
        self.speculation.cancel_surplus(self.runner.places - len(self._wanted_by))


def _unnamed(spec: TrialSpec) -> TrialSpec:
    return spec.model_copy(update={"trial_id": ""})
