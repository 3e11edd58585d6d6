"""Several turns at once: each wants one trial after another, and the executor has some places.

All is decided in one thread. It gives every turn's trial to the executor, waits for whichever ends
first, and lets the turn that wanted it go on with what was measured.
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
from agent.search.trials import Trial, TrialRunner
from autoresearch.errors import AutoresearchError
from trainer.spec import TrialSpec
from trajectory.rows import TrialRecord

PATIENCE_S = 1.0
"""That a free lane waits for a proposal that is being asked for, before a race may use it to run
ahead: what gives way again has cost a lane its start."""


@dataclass(slots=True)
class Scheduler:
    """The turns in flight."""

    runner: TrialRunner
    stop: StopRequest
    iterations: list[Iteration] = field(default_factory=list)
    trouble: AutoresearchError | None = None
    """Why nothing more can begin. What runs goes on to its end, and is on disk then."""
    deferral: ExitStack = field(default_factory=ExitStack)
    """Held while a trial runs, as that is worth finishing: signals are counted alone. Whoever works
    with a flight enters it, so that nothing stays deferred after him."""
    speculation: Speculation = field(init=False)
    _idle_since: float | None = None
    """By this process's clock: when there was first a lane that nothing was there for."""
    _has_speculated: bool = False
    """Whether nothing has happened since races were asked what they may want."""
    _wanted_by: dict[Trial, list[Iteration]] = field(default_factory=dict)
    """The trials that run. Two races may want the same one of their reference."""
    _measured: deque[tuple[Iteration, TrialRecord]] = field(default_factory=deque)
    """Turns whose trial has ended, to go on with what it measured: one at a time, as what a race is
    judged against may be replaced by the row of the one before."""
    _of_references: dict[TrialSpec, TrialRecord] = field(default_factory=dict)
    """Trials of references that have ended and stand in no row yet."""
    _shared: set[str] = field(default_factory=set)
    """Trials that two races have."""
    _recorded: set[str] = field(default_factory=set)
    """Of those shared, the ones that stand in a row."""

    def __post_init__(self) -> None:
        self.speculation = Speculation(self.runner)

    @property
    def is_held(self) -> bool:
        """Whether nothing more may begin."""
        return self.stop.asked or self.trouble is not None

    @property
    def _running(self) -> list[Trial]:
        """All that are not over, whoever wants them."""
        return [*self._wanted_by, *self.speculation.running, *self.speculation.leaving]

    @contextmanager
    def outlasting(self) -> Iterator[None]:
        """What fails within ends nothing that runs; it is raised once all of that has ended."""
        try:
            yield
        except AutoresearchError as error:
            self.trouble = self.trouble or error

    def start(self, iteration: Iteration) -> None:
        """One more iteration: its first trial begins, or waits for a place."""
        self.iterations.append(iteration)
        if iteration.outcome is None:
            self._advance(iteration, None)

    def speculate(self, *, more_comes: bool) -> None:
        """Have what races may want next run on the lanes that nothing else is there for. To be
        called once all has begun that there was to begin.

        :param more_comes: that a proposal is being asked for, which is waited for a little.
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
        """The turns that are over, after a wait for whatever happens first; often none. Where one
        is, its row is to be written before the next call: no other race goes on until then.

        :param more_comes: that a proposal is being asked for, so that there is something to wait
            for where no trial runs.
        :param meanwhile: what can be done before the wait, as nothing else can go on.
        :raises Interrupted: where a stop was asked for and nothing runs any more.
        :raises AutoresearchError: where the machinery failed and nothing runs any more.
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
        """Its trials but those that another turn's row has: one that two races wanted stands in
        the row of the first that ends."""
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
        """Turns that are over, once as many have gone on as it takes for one to be."""
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
        """
        :raises AutoresearchError: the trouble, where there is any.
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
        """Let it go on with what was measured, up to the next trial that it wants."""
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
            return  # as asked: it stays in flight for the next sitting
        self.speculation.cancel_surplus(self.runner.places - len(self._wanted_by))


def _unnamed(spec: TrialSpec) -> TrialSpec:
    return spec.model_copy(update={"trial_id": ""})
