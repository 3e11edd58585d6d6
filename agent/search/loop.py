"""The loop: ask, check, race, decide, write.

:class:`Loop` reads as that sentence. All its parts are passed in; it decides nothing about how a
proposer thinks, a trial runs or a row is stored.

An iteration is a coroutine, which awaits one trial at a time. All run in one thread, so whatever
happens between two trials happens at once: no decision depends on which trial ended first, and a
race that is over has its row before another one goes on. With one lane, a place for one trial at a
time, an iteration ends before the next one starts. With several, one more iteration than lanes is
in flight, and its trial waits for the first free lane.

A stop lets the running trials end, and starts none. What then is not decided stays in flight for
the next session.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, filterfalse
from typing import TypeVar

from agent.menu.edits import edited
from agent.menu.rails import Checked, Rails
from agent.proposers.base import Offer, Proposer, SearchView
from agent.proposers.priors import Prior
from agent.search.baseline import measure_baseline
from agent.search.campaign import Campaign
from agent.search.iterations import PendingFiles, PendingIteration
from agent.search.race import REFUSED, Race, decided, race_prune_rule
from agent.search.scribe import Scribe
from agent.search.stopping import Goal, Interrupted, Work, pause_requested
from agent.search.trial import Watcher
from agent.search.trials import TrialRunner
from autoresearch.errors import AutoresearchError, MenuError
from autoresearch.words import timestamp
from trainer.executors.base import POLL_S
from trainer.schema import AnyConfig, PruneRule
from trainer.telemetry import Sampler
from trajectory.proposals import ProposerRecord
from trajectory.queue import QUEUED, ProposalQueue, Queued
from trajectory.rows import (
    Decision,
    EventRow,
    IterationRow,
    Role,
    Rules,
    SpaceRow,
    TrialRecord,
)
from trajectory.space import clear_edits, has_edits, take_edits

Result = TypeVar("Result")


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
    asks_beside: bool | None = None
    """Whether to ask in a thread, beside running trials; None: if the proposer is slow or there are
    several lanes."""
    _left: list[PendingIteration] = field(init=False, default_factory=list)
    """Iterations in flight when the campaign last stopped, not yet resumed."""
    _flying: dict[int, PendingIteration] = field(init=False, default_factory=dict)
    """Iterations in flight, by number."""
    _asked: asyncio.Task[PendingIteration] | None = field(init=False, default=None)
    """Next proposal, which was asked for."""
    _trouble: AutoresearchError | None = field(init=False, default=None)
    """Error that keeps anything more from starting. Running trials end and are on disk then."""
    _goal: Goal = field(init=False, default_factory=Goal)
    _work_done: Work = field(init=False, default_factory=Work)
    """Work over all sessions."""
    _ended_at: float = 0.0
    """End of the last iteration, by this process's clock."""

    def __post_init__(self) -> None:
        self.rails.menu = self.campaign.menu
        self.scribe = Scribe(self.campaign, self.runner.stop, self.watcher.note)
        self._files = PendingFiles(self.campaign.directory)
        self._queue = ProposalQueue(self.campaign.directory, self.scribe.take_note)
        several = self.runner.places > 1  # one proposal waits for the first free lane
        self._slots = asyncio.Semaphore(self.runner.places + 1 if several else 1)
        if self.asks_beside is None:
            self.asks_beside = self.asks_early or several

    def run(self, goal: Goal) -> str:
        """Run until the campaign has reached its goal, and return the reason the loop stopped.

        :raises Interrupted: if a person stopped it; everything finished is on disk.
        """
        self._goal = goal
        self.scribe.report_unfinished(self.runner.orphaned)
        with self.runner.stop.deferred():  # a running trial is worth finishing
            try:
                asyncio.run(self._work())
            except BaseExceptionGroup as several:
                raise several.exceptions[0] from None
            reached = goal.reached(self._work_done)
            if reached is None:
                self.runner.stop.check()
            if self._trouble is not None:
                raise self._trouble
            assert reached is not None, "nothing else ends it"
            if not self._left:
                self.scribe.report_unused(self.runner.orphaned)
            return reached

    async def _work(self) -> None:
        """Measure the baseline, and start iterations while there is room and a lane is free."""
        await measure_baseline(
            self.campaign, self.runner, self.scribe, self.watcher.baseline_measured
        )
        self._take_stock()
        async with asyncio.TaskGroup() as iterations:
            while True:
                await self._slots.acquire()
                pending = await self._next()
                if pending is None:
                    break
                self._flying[pending.iter] = pending
                iterations.create_task(self._iterate(pending))
                await asyncio.sleep(0)  # its first trial starts before the next question
                held = self._left or self._is_paused or self._space_waits
                if self.asks_early and self._goes_on() and not held:
                    self._ask_ahead()
        if self._asked is not None:  # an answer too late
            self._asked.cancel()
            await asyncio.gather(self._asked, return_exceptions=True)

    async def _iterate(self, pending: PendingIteration) -> None:
        """Race a proposal, unless the rails refused it, and write its row.

        If nothing more may start, it stays in flight for the next session.
        """
        began, race = time.monotonic(), self._race(pending)
        try:
            with self._outlasting():
                if race is None:
                    decision = decided("none", pending.reference_hash, self.rules, REFUSED)
                else:
                    decision = await race.run()
                self._write(pending, decision, race, began)
        finally:
            del self._flying[pending.iter]
            self._slots.release()

    def _take_stock(self) -> None:
        """Find the iterations in flight when the campaign last stopped. Numbers are read from the
        journal rather than an index, since a number given twice could not be taken back."""
        rows = list(self.campaign.journal.rows())
        self._work_done = Work.of(rows)
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
        """Keep other iterations alive after an error or a stop within; the loop raises it once they
        have ended."""
        try:
            yield
        except Interrupted:  # as asked, and the request stands
            return
        except AutoresearchError as error:
            self._trouble = self._trouble or error

    def _goes_on(self) -> bool:
        """Return whether one more iteration may start, or be asked for."""
        if self.runner.stop.asked or self._trouble is not None:
            return False
        return self._goal.leaves_room(self._work_done, len(self._flying))

    @property
    def _space_waits(self) -> bool:
        return has_edits(self.campaign.directory)

    def _take_edits(self) -> None:
        """Take up the edits of the space, while nothing proposed in the former one is in flight."""
        campaign, known = self.campaign, self.campaign.results.rows_of(SpaceRow)
        for edit in take_edits(campaign.directory):
            if edit in known:  # killed between its row and the file's removal
                continue
            try:
                menu = edited(campaign.menu, edit.knobs, campaign.reference)
            except MenuError as error:  # the reference has moved since
                self.scribe.take_note(f"an edit by {edit.author} was not taken up: {error}")
                continue
            self.scribe.record(edit)
            campaign.menu = self.rails.menu = menu
            self.watcher.note(f"the space was edited by {edit.author}: {edit}")
        clear_edits(campaign.directory)

    @property
    def _is_paused(self) -> bool:
        return pause_requested(self.campaign.directory)

    async def _next(self) -> PendingIteration | None:
        """Return an iteration to resume, else that of a queued proposal, else the next proposal's;
        None if no more may start."""
        with self._outlasting():
            while self._goes_on():
                if self._is_paused and self._flying:
                    await asyncio.sleep(POLL_S)
                elif self._is_paused:
                    self.scribe.wait_while_paused()
                elif self._left:
                    return self._left.pop(0)
                elif self._space_waits and self._asked is None:
                    if self._flying:
                        await asyncio.sleep(POLL_S)
                    else:
                        self._take_edits()
                elif not self._space_waits and (queued := self._queue.take()) is not None:
                    view = self._view_of(next(self._numbers))
                    return self._accepted(await self._ask(view, partial(_as_queued, queued)))
                elif self._asked is None:
                    self._ask_ahead()
                elif self._asked.done():
                    asked, self._asked = self._asked, None
                    return self._accepted(asked.result())
                else:
                    await asyncio.wait([self._asked], timeout=POLL_S)
        return None

    def _ask_ahead(self) -> None:
        """Ask for the next proposal, unless that is done, without waiting for it."""
        if self._asked is None:
            view = self._view_of(next(self._numbers))
            if not self._flying:
                self.watcher.proposing(view.iter)
            self._asked = asyncio.create_task(self._ask(view, self.proposer.propose))

    async def _ask(
        self, view: SearchView, propose: Callable[[SearchView], Offer]
    ) -> PendingIteration:
        """Ask for a proposal, and check it.

        :raises AutoresearchError: if there is none.
        """
        began = time.monotonic()

        def checked() -> tuple[Offer, Checked]:
            offer = propose(view)
            return offer, self.rails.check(offer.reply, view.reference, view.tried)

        offer, found = await in_thread(checked) if self.asks_beside else checked()
        return PendingIteration(
            iter=view.iter,
            reference_hash=view.reference.config_hash,
            proposer=offer.record,
            proposal=found.proposal,
            verdict=found.verdict,
            config=found.config,
            wall_s=0,
            until=view.until,
            began=began,
        )

    def _view_of(self, iteration: int) -> SearchView:
        campaign = self.campaign
        in_flight = [*self._flying.values(), *self._left]
        return SearchView(
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

    def _accepted(self, pending: PendingIteration) -> PendingIteration:
        """Record a new proposal and the rails' verdict, on disk if it will be raced."""
        fallback, config = pending.proposer.fallback, pending.config
        if fallback is not None:
            self.scribe.record(EventRow(at=timestamp(), event="fallback", why=fallback))
            self.watcher.note(f"iteration {pending.iter}: {fallback}")
        reference = self.campaign.evidence.configs[pending.reference_hash].config
        prune = race_prune_rule(self.campaign, reference, config, self.runner.curve)
        # until the last iteration ended, nothing waited for the answer
        began = max(pending.began or 0.0, self._ended_at)
        wall_s = time.monotonic() - began
        pending = pending.model_copy(update={"prune": prune, "wall_s": wall_s, "began": began})
        if config is not None:
            self._files.write(pending)
        return pending

    def _race(self, pending: PendingIteration) -> Race | None:
        """Return the race of a proposal; None if the rails refused it."""
        if pending.config is None:
            return None
        return Race(
            trial=self._trial,
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

    async def _trial(
        self, config: AnyConfig, seed: int, role: Role, prune: PruneRule | None
    ) -> TrialRecord:
        """Run a trial of a race.

        :raises AutoresearchError: also if an error elsewhere keeps it from starting.
        """
        if self._trouble is not None:
            raise self._trouble
        spec = self.runner.spec(config, seed, prune)
        return await self.runner.record(self.runner.begin(spec, role))

    def _write(
        self, pending: PendingIteration, decision: Decision, race: Race | None, race_began: float
    ) -> None:
        """Write an iteration's row. Its in-flight file stays until then."""
        race_s, began = time.monotonic() - race_began, pending.began
        others = (one for one in self._flying.values() if one is not pending)
        resumes = self._left or any(one.began is None for one in others)
        if race is not None and not resumes:
            self.scribe.report_unused(self.runner.orphaned)
        trials = self.runner.claimed(race.trials if race else ())
        resumed = [trial.wall_s for trial in trials if trial.trial_id in self.runner.resumed]
        several = self.runner.places > 1  # they share the energy
        row = IterationRow(
            iter=pending.iter,
            at=timestamp(),
            proposer=pending.proposer,
            proposal=pending.proposal,
            verdict=pending.verdict,
            config=pending.config,
            config_hash=pending.config.config_hash if pending.config else None,
            trials=trials,
            decision=decision,
            # in this session; trials resumed from an earlier one are added
            wall_s=pending.wall_s + race_s + sum(resumed),
            energy_wh=None if several or began is None else self.meter.energy_wh(began),
            lanes=self.runner.places if several else None,
        )
        self.scribe.record(row)
        self._work_done.add(row)
        self._ended_at = time.monotonic()
        self._files.clear(row.iter)
        if row.proposer.queue_id:
            self._queue.clear(row.proposer.queue_id)
        self.watcher.iteration_ended(row)


def _as_queued(queued: Queued, _view: SearchView) -> Offer:
    record = ProposerRecord(kind=QUEUED, author=queued.author, queue_id=queued.id)
    return Offer(queued.proposal, record)


async def in_thread(work: Callable[[], Result]) -> Result:
    """Return what the work returns, or raise what it raises, from a daemon thread, for which nobody
    waits who stops the campaign."""
    future: Future[Result] = Future()

    def run() -> None:
        with suppress(InvalidStateError):  # nobody waits any more
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 (raised again where it is awaited)
                future.set_exception(error)

    threading.Thread(target=run, name="proposer", daemon=True).start()
    return await asyncio.wrap_future(future)
