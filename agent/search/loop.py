"""The loop: propose, check, race, decide, record.

:class:`Loop` reads as that sentence. All its parts are passed in; it decides nothing about how a
    proposer thinks, a trial runs or a row is stored. The number of iterations in flight follows
    from the executor's lanes (:mod:`agent.search.scheduler`). With one lane, an iteration ends
    before the next is proposed.
"""

import time
from dataclasses import dataclass, field
from functools import partial

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Proposer, QueuedProposer
from agent.search.baseline import measure_baseline
from agent.search.campaign import Campaign
from agent.search.iterations import (
    Answer,
    AskedInThread,
    AskedNow,
    Iteration,
    PendingFiles,
    PendingIteration,
    answered,
    free_numbers,
    judged,
)
from agent.search.pruning import race_prune_rule
from agent.search.race import Race, known_noise, no_trials, not_raced
from agent.search.scheduler import Scheduler
from agent.search.scribe import Afterwards, Scribe
from agent.search.stopping import Goal, StopRequest, Work, pause_requested
from agent.search.trial import Watcher
from agent.search.trials import TrialRunner
from autoresearch.words import timestamp
from trainer.telemetry import Sampler
from trajectory.queue import ProposalQueue
from trajectory.rows import EventRow, IterationRow
from trajectory.rules import Rules


@dataclass
class Loop:
    """Runs one campaign."""

    campaign: Campaign
    proposer: Proposer
    rails: Rails
    rules: Rules
    runner: TrialRunner
    watcher: Watcher
    stop: StopRequest
    meter: Sampler
    asks_early: bool = False
    """Whether to ask a slow proposer during the trials before its own, without their results."""
    asking: AskedNow | None = None
    """Asks for proposals; None: the loop itself, or a thread beside running trials."""
    _left: list[PendingIteration] = field(init=False, default_factory=list)
    """Iterations in flight when the campaign last stopped, not yet resumed."""
    _resumed: set[int] | None = field(init=False, default_factory=set)
    """Resumed iterations whose races are not over; None once their orphaned trials are recorded."""
    _goal: Goal = field(init=False, default_factory=Goal)
    _work: Work = field(init=False, default_factory=Work)
    """Work over all sessions."""
    _ended_at: float = 0.0
    """End of the last iteration, by this process's clock."""

    def __post_init__(self) -> None:
        self.scribe = Scribe(self.campaign, self.stop, self.watcher.note)
        self._scheduler = Scheduler(self.runner, self.stop)
        self._files = PendingFiles(self.campaign.directory)
        self._queue = ProposalQueue(self.campaign.directory, self.scribe.take_note)
        self._afterwards = Afterwards(self.scribe, self._files, self._queue, self.watcher)
        self._numbers = free_numbers(set())
        waits = not self.asks_early and self.runner.places == 1
        usual = AskedNow() if waits else AskedInThread(self.runner.wake.set)
        self._asking = self.asking or usual

    def run(self, goal: Goal) -> str:
        """Run until the campaign has reached its goal, and return the reason the loop stopped.

        :raises Interrupted: if a person stopped it; everything finished is on disk.
        """
        self._goal = goal
        self._work = Work(self.campaign.evidence.tally.iterations)
        if not goal.is_iterations_alone:
            self._work = Work.of(self.campaign.journal.rows())
        self.scribe.report_unfinished(self.runner.orphaned)
        with self.runner.undisturbed(), self._scheduler.deferral:
            for row in measure_baseline(self.campaign, self.runner, self.scribe):
                self._work.add(row)
                self.watcher.baseline_measured(row)
            self._take_stock()
            while True:
                reached = goal.reached(self._work)
                if reached is None:
                    self._start_iterations()
                elif not self._scheduler.iterations:
                    self._afterwards.catch_up()
                    self._scheduler.raise_trouble()
                    return reached
                if self.runner.places > 1 and not pause_requested(self.campaign.directory):
                    self._scheduler.speculate(more_comes=self._asking.busy)
                over = self._scheduler.finished(
                    more_comes=self._asking.busy, meanwhile=self._afterwards.catch_up
                )
                for iteration in over:
                    with self._scheduler.outlasting():
                        self._ended(iteration)

    def _take_stock(self) -> None:
        """Find the iterations in flight when the campaign last stopped. Numbers are read from the
        journal rather than an index, since a number given twice could not be taken back."""
        rows = [row for row in self.campaign.journal.rows() if isinstance(row, IterationRow)]
        done = {row.iter for row in rows}
        self._left = self._files.left(self.campaign, self.rails, done)
        self._queue.recover(
            [row.proposer.queue_id for row in rows if row.proposer.queue_id],
            [pending.proposer.queue_id for pending in self._left if pending.proposer.queue_id],
        )
        self._numbers = free_numbers(done | {pending.iter for pending in self._left})

    # --- an iteration starts ---------------------------------------------------------------------

    def _start_iterations(self) -> None:
        """Start iterations until every lane is busy. With several lanes, one more than lanes of a
        kind is in flight, and its trial waits for the first free lane."""
        while self._may_begin():
            iteration = self._next_iteration()
            if iteration is None:
                return
            self._scheduler.start(iteration)
        if self.asks_early and not self._asking.busy and not self._left and self._may_begin(1):
            self._ask()

    def _may_begin(self, more: int = 0) -> bool:
        in_flight = self._scheduler.iterations
        if not in_flight:
            with self._scheduler.outlasting():
                self._afterwards.catch_up()  # no lane waits for that
            self.stop.check()
            if self._scheduler.trouble is None:
                self.scribe.wait_while_paused()
        elif pause_requested(self.campaign.directory):
            return False
        most = self.runner.places + 1 if self.runner.places > 1 else 1
        if self._scheduler.is_held or len(in_flight) >= most + more:
            return False
        return self._goal.leaves_room(self._work, len(in_flight))

    def _next_iteration(self) -> Iteration | None:
        """Return an iteration to resume, else that of a queued proposal, else the next proposal's;
        None while that is pending or has failed."""
        with self._scheduler.outlasting():
            if self._left:
                pending = self._left.pop(0)
                self._resumed = {pending.iter} | (self._resumed or set())
                return self._raced(pending)
            if (queued := self._queue.take()) is not None:
                memory = self._memory(next(self._numbers))
                answer = answered(QueuedProposer(queued), self.rails, memory)
                return self._raced(self._proposed(answer))
            if not self._asking.busy:
                self._ask()
            found = self._asking.answer()
            return None if found is None else self._raced(self._proposed(found))
        return None

    def _ask(self) -> None:
        memory = self._memory(next(self._numbers))
        if not self._scheduler.iterations:
            self.watcher.proposing(memory.iter)
        self._asking.ask(partial(answered, self.proposer, self.rails, memory))

    def _proposed(self, answer: Answer) -> PendingIteration:
        """Record a new proposal and the rails' verdict, on disk if it will be raced."""
        memory, record, checked = answer.memory, answer.offer.record, answer.checked
        if record.fallback is not None:
            self.scribe.record(EventRow(at=timestamp(), event="fallback", why=record.fallback))
            self.watcher.note(f"iteration {memory.iter}: {record.fallback}")
        began = max(answer.began, self._ended_at)  # until then nothing waited for the answer
        curve, reference = self.runner.curve, memory.reference
        prune = race_prune_rule(curve, self.campaign, reference, checked.config)
        pending = PendingIteration(
            iter=memory.iter,
            reference_hash=memory.reference.config_hash,
            proposer=record,
            proposal=checked.proposal,
            verdict=checked.verdict,
            config=checked.config,
            wall_s=time.monotonic() - began,
            prune=prune,
            until=memory.until,
            began=began,
        )
        if pending.config is not None:
            self._files.write(pending)
        return pending

    def _raced(self, pending: PendingIteration) -> Iteration:
        """Return the iteration of a proposal: its race, or no trial if the rails refused it."""
        began = time.monotonic()
        if pending.config is None:
            outcome = not_raced(pending.reference_hash, self.rules)
            return Iteration(pending, no_trials(), began, outcome)
        evidence = self.campaign.evidence
        known_noise(evidence)  # fail before anything runs
        race = Race(
            curve=self.runner.curve,
            evidence=evidence,
            noise=lambda: known_noise(evidence),
            rules=self.rules,
            reference=evidence.configs[pending.reference_hash].config,
            candidate=pending.config,
            first_seed=self.campaign.baseline_seeds[0],
            prune=pending.prune,
            on_assessment=self.watcher.assessed,
            measure=self.campaign.menu.measure,
        )
        return Iteration(pending, judged(race, lambda: self.campaign.reference), began)

    # --- an iteration ends -----------------------------------------------------------------------

    def _ended(self, iteration: Iteration) -> None:
        """Write an iteration's row. Its in-flight file stays until then."""
        pending, outcome = iteration.pending, iteration.outcome
        assert outcome is not None, "a finished iteration has one"
        race_s = time.monotonic() - iteration.began
        if pending.config is not None:
            self._account_for_lost(pending.iter)
        trials = self._scheduler.own_trials(outcome)
        resumed = [t.wall_s for t in trials if t.trial_id in self.runner.resumed]
        several, energy_wh = self.runner.places > 1, None
        if pending.began is not None and not several:  # several in flight share the energy
            energy_wh = self.meter.energy_wh(pending.began)
        row = IterationRow(
            iter=pending.iter,
            at=timestamp(),
            proposer=pending.proposer,
            proposal=pending.proposal,
            verdict=pending.verdict,
            config=pending.config,
            config_hash=pending.config.config_hash if pending.config else None,
            trials=trials,
            decision=outcome.decision,
            # in this session; trials resumed from an earlier one are added
            wall_s=pending.wall_s + race_s + sum(resumed),
            energy_wh=energy_wh,
            lanes=self.runner.places if several else None,
        )
        # First the trials that are in no row: a kill between the two leaves them uncounted.
        self.scribe.not_needed(self._scheduler.unneeded())
        self._afterwards.write(row)
        self._work.add(row)
        self._ended_at = time.monotonic()

    def _account_for_lost(self, iteration: int) -> None:
        """Record finished trials that no iteration asked for, once every resumed one is over. Long
        runs are kept, since the next stress test asks for them."""
        if self._resumed is None:
            return
        self._resumed.discard(iteration)
        if self._resumed or self._left:
            return
        self._resumed = None
        self.scribe.interrupted(
            self.runner.orphaned.give_up(self.campaign.is_short_run),
            "finished before the campaign last stopped, but their iteration was lost",
        )

    def _memory(self, iteration: int) -> Memory:
        campaign = self.campaign
        in_flight = [*(iteration.pending for iteration in self._scheduler.iterations), *self._left]
        return Memory(
            menu=campaign.menu,
            reference=campaign.reference,
            evidence=campaign.evidence.snapshot(),
            iter=iteration,
            seed=campaign.settings.seed,
            max_changes=self.rails.max_changes,
            until=self._goal.iterations,
            corpus=campaign.row.corpus,
            rules=self.rules,
            pending=tuple(pending.config for pending in in_flight if pending.config is not None),
        )
