"""The loop: ask, check, race, decide, write.

:class:`Loop` reads as that sentence. All its parts are passed in; it decides nothing about how a
proposer thinks, a trial runs or a row is stored.

One thread decides everything. Each iteration in flight waits for one trial at a time. Races decide
on their seeds in order, so no decision depends on which trial ended first. With one lane, a place
for one trial at a time, an iteration ends before the next one starts. With several, one more
iteration than lanes is in flight, and its trial waits for the first free lane.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, filterfalse

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer, Proposer
from agent.proposers.priors import Prior
from agent.search.baseline import measure_baseline
from agent.search.campaign import Campaign
from agent.search.iterations import (
    Answer,
    Asker,
    Iteration,
    PendingFiles,
    PendingIteration,
)
from agent.search.race import REFUSED, Race, decided, race_prune_rule
from agent.search.scribe import Scribe
from agent.search.stopping import Goal, Interrupted, Work, pause_requested
from agent.search.trial import Watcher
from agent.search.trials import TrialRunner
from autoresearch.errors import AutoresearchError
from autoresearch.words import timestamp
from trainer.telemetry import Sampler
from trajectory.proposals import ProposerRecord
from trajectory.queue import QUEUED, ProposalQueue
from trajectory.rows import EventRow, IterationRow, Rules


@dataclass
class Loop:
    """Runs one campaign."""

    campaign: Campaign
    proposer: Proposer
    rails: Rails
    rules: Rules
    runner: TrialRunner
    watcher: Watcher
    meter: Sampler
    asks_early: bool = False
    """Whether to ask a slow proposer during the trials before its own, without their results."""
    priors: tuple[Prior, ...] = ()
    """Earlier campaigns that the proposer may learn from."""
    asker: Asker | None = None
    """Asks for proposals; None: the loop itself, or a thread beside running trials."""
    _left: list[PendingIteration] = field(init=False, default_factory=list)
    """Iterations in flight when the campaign last stopped, not yet resumed."""
    _iterations: list[Iteration] = field(init=False, default_factory=list)
    """Iterations in flight."""
    _trouble: AutoresearchError | None = field(init=False, default=None)
    """Error that keeps anything more from starting. Running trials end and are on disk then."""
    _goal: Goal = field(init=False, default_factory=Goal)
    _work: Work = field(init=False, default_factory=Work)
    """Work over all sessions."""
    _ended_at: float = 0.0
    """End of the last iteration, by this process's clock."""

    def __post_init__(self) -> None:
        self.scribe = Scribe(self.campaign, self.runner.stop, self.watcher.note)
        self._files = PendingFiles(self.campaign.directory)
        self._queue = ProposalQueue(self.campaign.directory, self.scribe.take_note)
        in_thread = self.asks_early or self.runner.places > 1
        self._asker = self.asker or Asker(self.runner.wake.set if in_thread else None)

    def run(self, goal: Goal) -> str:
        """Run until the campaign has reached its goal, and return the reason the loop stopped.

        :raises Interrupted: if a person stopped it; everything finished is on disk.
        """
        self._goal = goal
        self.scribe.report_unfinished(self.runner.orphaned)
        with self.runner.stop.deferred():  # a running trial is worth finishing
            for row in measure_baseline(self.campaign, self.runner, self.scribe):
                self.watcher.baseline_measured(row)
            self._take_stock()
            while True:
                reached = goal.reached(self._work)
                if reached is None:
                    self._start_iterations()
                if reached is not None and not self._iterations:
                    if self._trouble is not None:
                        raise self._trouble
                    if not self._left:
                        self.scribe.report_unused(self.runner.orphaned)
                    return reached
                iteration = self._next_over() or self._wait_for_one()
                if iteration is not None:
                    with self._outlasting():
                        self._write(iteration)

    def _take_stock(self) -> None:
        """Find the iterations in flight when the campaign last stopped. Numbers are read from the
        journal rather than an index, since a number given twice could not be taken back."""
        rows = list(self.campaign.journal.rows())
        self._work = Work.of(rows)
        iterations = [row for row in rows if isinstance(row, IterationRow)]
        done = {row.iter for row in iterations}
        self._left = self._files.left(self.campaign, self.rails, done)
        self._queue.recover(
            [row.proposer.queue_id for row in iterations if row.proposer.queue_id],
            [pending.proposer.queue_id for pending in self._left if pending.proposer.queue_id],
        )
        taken = done | {pending.iter for pending in self._left}
        # an iteration that was in flight and cannot be resumed leaves a gap, which is filled first
        self._numbers = filterfalse(taken.__contains__, count(1))

    @contextmanager
    def _outlasting(self) -> Iterator[None]:
        """Keep running trials alive after an error within; it is raised once they have ended."""
        try:
            yield
        except AutoresearchError as error:
            self._trouble = self._trouble or error

    def _start_iterations(self) -> None:
        """Start iterations until every lane is busy."""
        while self._may_begin():
            with self._outlasting():
                iteration = self._next_iteration()
                if iteration is None:
                    break
                self._iterations.append(iteration)
                if iteration.decision is None:
                    self._advance(iteration)
        if self.asks_early and not self._asker.busy and not self._left and self._may_begin(1):
            self._ask()

    def _may_begin(self, more: int = 0) -> bool:
        if not self._iterations:
            self.runner.stop.check()
            if self._trouble is None:
                self.scribe.wait_while_paused()
        elif pause_requested(self.campaign.directory):
            return False
        most = self.runner.places + 1 if self.runner.places > 1 else 1
        if self.runner.stop.asked or self._trouble or len(self._iterations) >= most + more:
            return False
        return self._goal.leaves_room(self._work, len(self._iterations))

    def _next_iteration(self) -> Iteration | None:
        """Return an iteration to resume, else that of a queued proposal, else the next proposal's;
        None while that is pending."""
        if self._left:
            return self._raced(self._left.pop(0))
        if (queued := self._queue.take()) is not None:
            record = ProposerRecord(kind=QUEUED, author=queued.author, queue_id=queued.id)
            offer = Offer(queued.proposal, record)
            memory = self._memory(next(self._numbers))
            answer: Answer | None = Answer.to(memory, lambda _: offer, self.rails)
        else:
            if not self._asker.busy:
                self._ask()
            answer = self._asker.answer()
        return None if answer is None else self._raced(self._proposed(answer))

    def _ask(self) -> None:
        memory = self._memory(next(self._numbers))
        if not self._iterations:
            self.watcher.proposing(memory.iter)
        self._asker.ask(self.proposer, self.rails, memory)

    def _memory(self, iteration: int) -> Memory:
        campaign = self.campaign
        in_flight = [*(each.pending for each in self._iterations), *self._left]
        return Memory(
            menu=campaign.menu,
            reference=campaign.reference,
            evidence=campaign.evidence.snapshot(),
            iter=iteration,
            seed=campaign.settings.seed,
            max_changes=self.rails.max_changes,
            priors=self.priors,
            until=self._goal.iterations,
            corpus=campaign.row.corpus,
            rules=self.rules,
            pending=tuple(pending.config for pending in in_flight if pending.config is not None),
        )

    def _proposed(self, answer: Answer) -> PendingIteration:
        """Record a new proposal and the rails' verdict, on disk if it will be raced."""
        memory, record = answer.memory, answer.offer.record
        if record.fallback is not None:
            self.scribe.record(EventRow(at=timestamp(), event="fallback", why=record.fallback))
            self.watcher.note(f"iteration {memory.iter}: {record.fallback}")
        config = answer.checked.config
        curve = self.runner.curve
        prune = race_prune_rule(self.campaign, memory.reference, config, curve)
        # until the last iteration ended, nothing waited for the answer
        pending = PendingIteration.of(answer, max(answer.began, self._ended_at), prune)
        if config is not None:
            self._files.write(pending)
        return pending

    def _raced(self, pending: PendingIteration) -> Iteration:
        """Return the iteration of a proposal, decided already if the rails refused it."""
        if pending.config is None:
            decision = decided("none", pending.reference_hash, self.rules, REFUSED)
            return Iteration(pending, decision=decision)
        race = Race(
            curve=self.runner.curve,
            evidence=self.campaign.evidence,
            rules=self.rules,
            reference=self.campaign.evidence.configs[pending.reference_hash].config,
            reference_now=lambda: self.campaign.reference,
            candidate=pending.config,
            first_seed=self.campaign.baseline_seeds[0],
            prune=pending.prune,
            on_assessment=self.watcher.assessed,
            measure=self.campaign.menu.measure,
        )
        return Iteration(pending, race=race, schedule=race.schedule())

    def _advance(self, iteration: Iteration) -> None:
        """Resume an iteration's race with the trial that has ended, up to the next trial.

        If nothing more may start, the iteration stays in flight for the next session.
        """
        trial, iteration.trial = iteration.trial, None
        wanted = iteration.next_wanted(None if trial is None else self.runner.ended(trial))
        if wanted is None or self._trouble is not None:
            return
        spec = self.runner.spec(wanted.config, wanted.seed, wanted.prune)
        with suppress(Interrupted):  # as asked: nothing starts any more
            iteration.trial = self.runner.begin(spec, wanted.role)

    def _next_over(self) -> Iteration | None:
        """Advance the races whose trial has ended until one is over, and return its iteration. The
        others wait for its row, which may replace their reference."""
        for iteration in self._iterations:
            while iteration.decision is None and iteration.trial and iteration.trial.job.done():
                with self._outlasting():
                    self._advance(iteration)
            if iteration.decision is not None:
                self._iterations.remove(iteration)
                return iteration
        return None

    def _wait_for_one(self) -> Iteration | None:
        """Wait for the next event, and return an iteration that is over then, if any.

        :raises Interrupted: if a stop was asked for and nothing runs any more.
        :raises AutoresearchError: if the machinery failed and nothing runs any more.
        """
        running = [each.trial for each in self._iterations if each.trial is not None]
        if not running and (self.runner.stop.asked or self._trouble or not self._asker.busy):
            if self._trouble is not None:
                raise self._trouble
            self.runner.stop.check()
        self.runner.wait(running)
        return self._next_over()

    def _write(self, iteration: Iteration) -> None:
        """Write an iteration's row. Its in-flight file stays until then."""
        race_s, began = time.monotonic() - iteration.began, iteration.pending.began
        resumes = self._left or any(each.pending.began is None for each in self._iterations)
        if iteration.race is not None and not resumes:
            self.scribe.report_unused(self.runner.orphaned)
        trials = self.runner.claimed(iteration.race.trials if iteration.race else ())
        resumed = [t.wall_s for t in trials if t.trial_id in self.runner.resumed]
        several = self.runner.places > 1  # they share the energy
        row = iteration.row(
            trials,
            # in this session; trials resumed from an earlier one are added
            race_s=race_s + sum(resumed),
            energy_wh=None if several or began is None else self.meter.energy_wh(began),
            lanes=self.runner.places if several else None,
        )
        self.scribe.record(row)
        self._work.add(row)
        self._ended_at = time.monotonic()
        self._files.clear(row.iter)
        if row.proposer.queue_id:
            self._queue.clear(row.proposer.queue_id)
        self.watcher.iteration_ended(row)
