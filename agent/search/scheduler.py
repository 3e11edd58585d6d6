"""Schedule the trials of several iterations on the executor's lanes.

One thread decides everything. It gives each iteration's trial to the executor, waits for the first
one to end, and resumes the iteration that requested it with the result.

An idle lane runs a speculative trial, which a race may request next. A race decides on its seeds in
order, so no decision depends on which trial ended first. A speculative trial that no race requests
is not counted; an event records it. A requested trial takes its lane at once.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, zip_longest

from agent.search.iterations import Iteration
from agent.search.race import Outcome, TrialKey, Wanted
from agent.search.stopping import Interrupted, StopRequest
from agent.search.trial import Trial
from agent.search.trials import TrialRunner
from autoresearch.errors import AutoresearchError
from trajectory.rows import TrialRecord

PATIENCE_S = 1.0
"""Seconds an idle lane waits for an open proposal before it starts a speculative trial. Cancelling
a speculative trial later costs the lane a start."""


@dataclass(slots=True, eq=False)
class InFlightTrial:
    """A trial of the iterations in flight, from its start until a row holds it."""

    key: TrialKey
    trial: Trial
    wanted_by: list[Iteration] = field(default_factory=list)
    """Iterations whose races requested it. Two may request the same trial of their reference."""
    speculative_for: Iteration | None = None
    """Iteration whose race may request it; None once a race does."""
    record: TrialRecord | None = None
    """Set once it has ended."""

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.record is None

    @property
    def is_speculative(self) -> bool:
        """Whether no race has requested it yet."""
        return self.speculative_for is not None


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
    _idle_since: float | None = None
    """Time since which a lane has been idle, by this process's clock."""
    _has_speculated: bool = False
    """Whether nothing has happened since the last speculation."""
    _trials: dict[TrialKey, InFlightTrial] = field(default_factory=dict)
    """All trials, in the order in which they were wanted, or started if none wanted them yet."""
    _leaving: set[Trial] = field(default_factory=set)
    """Cancelled trials that still hold their lanes."""
    _measured: deque[tuple[Iteration, TrialRecord]] = field(default_factory=deque)
    """Iterations whose trial has ended, with its record. They advance one at a time, because the
    row of one may replace the reference of the next."""
    _recorded: set[str] = field(default_factory=set)
    """Trials that a row of this session holds."""
    _unneeded: list[str] = field(default_factory=list)

    @property
    def is_held(self) -> bool:
        """Whether nothing more may start."""
        return self.stop.asked or self.trouble is not None

    @property
    def wanted(self) -> list[InFlightTrial]:
        """Running trials that a race wants."""
        return [each for each in self._trials.values() if each.runs and not each.is_speculative]

    @property
    def speculative(self) -> list[InFlightTrial]:
        """Running trials that no race has requested yet, in the order of their starts."""
        return [each for each in self._trials.values() if each.runs and each.is_speculative]

    @property
    def _running(self) -> list[Trial]:
        """All trials that have not ended."""
        return [*(each.trial for each in self.wanted + self.speculative), *self._leaving]

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
        if places <= 0 or self.is_held or self._measured or not self.wanted:
            return
        now = time.monotonic()
        self._idle_since = now if self._idle_since is None else self._idle_since
        if self._has_speculated or (more_comes and now - self._idle_since < PATIENCE_S):
            return
        self._has_speculated = True
        with self.outlasting():
            # First the next trial of each race, then those after it.
            wanted_next = ([(one, wanted) for wanted in one.then] for one in self.iterations)
            for iteration, wanted in filter(None, chain.from_iterable(zip_longest(*wanted_next))):
                if wanted.key in self._trials:
                    continue
                try:
                    trial = self._started(wanted)
                except Interrupted:
                    return  # a stop was asked for: nothing starts
                started = InFlightTrial(wanted.key, trial, speculative_for=iteration)
                self._trials[wanted.key] = started
                places -= 1
                if places == 0:
                    return

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
            # If the machinery failed, the trial is forgotten.
            with self.outlasting():
                self._has_speculated = False
                if trial in self._leaving:
                    self._leaving.discard(trial)
                    self.runner.given_up(trial)
                    continue
                each = next(each for each in self._trials.values() if each.trial is trial)
                del self._trials[each.key]
                each.record = record = self.runner.ended(trial)
                self._trials[each.key] = each
                self._measured.extend((iteration, record) for iteration in each.wanted_by)
        return self._advance_measured()

    def own_trials(self, outcome: Outcome) -> tuple[TrialRecord, ...]:
        """Return an outcome's trials that no other row holds. A trial that two races requested
        belongs to the row of the first that ends."""
        mine = tuple(trial for trial in outcome.trials if trial.trial_id not in self._recorded)
        self._recorded.update(trial.trial_id for trial in mine)
        self._trials = {
            key: each
            for key, each in self._trials.items()
            if each.trial.spec.trial_id not in self._recorded
        }
        return mine

    def unneeded(self) -> list[str]:
        """Return speculative trials that no race used, each only once."""
        unneeded, self._unneeded = self._unneeded, []
        return unneeded

    def raise_trouble(self) -> None:
        """Raise the pending error, if any.

        :raises AutoresearchError: the error that stopped new trials.
        """
        if self.trouble is not None:
            raise self.trouble

    # --- races advance ---------------------------------------------------------------------------

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
                for each in list(self._trials.values()):
                    if each.speculative_for is iteration:
                        self._discard(each)
                return
            iteration.then = wanted.then
            self._begin(iteration, wanted)

    # --- trials begin and end --------------------------------------------------------------------

    def _begin(self, iteration: Iteration, wanted: Wanted) -> None:
        """Start the trial that a race wants, unless it runs or has ended already."""
        each = self._trials.pop(wanted.key, None)
        is_new = each is None
        if each is None:
            if self.trouble is not None:
                return
            if not self._running:
                self.deferral.enter_context(self.stop.deferred())
            try:
                each = InFlightTrial(wanted.key, self._started(wanted))
            except Interrupted:
                return  # as asked: it stays in flight for the next session
        each.speculative_for = None
        each.wanted_by.append(iteration)
        self._trials[wanted.key] = each
        if each.record is not None:
            self._advance(iteration, each.record)
        elif is_new:
            # Wanted trials need their lanes: cancel surplus speculative trials, newest first.
            surplus = len(self.wanted) + len(self.speculative) - self.runner.places
            for other in self.speculative[::-1][: max(0, surplus)]:
                self._discard(other)

    def _started(self, wanted: Wanted) -> Trial:
        spec = self.runner.spec(wanted.config, wanted.seed, wanted.prune)
        return self.runner.begin(spec, wanted.role)

    def _discard(self, each: InFlightTrial) -> None:
        """Cancel or forget a speculative trial."""
        del self._trials[each.key]
        self._unneeded.append(each.trial.spec.trial_id)
        if each.runs:
            each.trial.cancel()
            self._leaving.add(each.trial)
