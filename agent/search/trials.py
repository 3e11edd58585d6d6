"""Run a campaign's trials: assign ids and directories, and lose none.

A trial's spec.json is on disk before it starts, and its row is written after it ends. So a trial
with a directory and no row was in flight when the campaign last stopped. If it had finished, its
result is reused when the same spec is asked for; otherwise it is recorded as interrupted. Nothing
is dropped silently, and nothing counts twice.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from pathlib import Path

from agent.search.stopping import Interrupted, StopRequest
from agent.search.trial import EndHook, StartHook, TrialWatcher, left_s, read_orphaned_trials
from autoresearch.campaign_files import has_folder, make_folder, names
from autoresearch.files import writing_to
from autoresearch.layout import ORDERS_DIR, TRIALS_DIR, is_trial_id, nth_trial_id, trial_number
from autoresearch.words import timestamp
from trainer.executors.base import CANCEL_S, POLL_S, Executor, Finished, Job, TrialAborted
from trainer.isolation.trial_files import wall_s
from trainer.schema import AnyConfig, CurvePoint, Place, PruneRule, TrialSpec
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
        self.resumed: set[str] = set()
        """Trials from before the last stop whose results were used since."""
        self._unclaimed: dict[TrialSpec, asyncio.Task[TrialRecord]] = {}
        """Trials of this session that no row holds, by their spec without the id."""
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

    async def run_all(
        self,
        specs: Iterable[tuple[TrialSpec, Role] | None],
        take: Callable[[TrialRecord], None],
    ) -> None:
        """Run the trials of all specs, as many at once as there are lanes, and hand over their
        records in the order of the specs.

        With one lane, a spec is not asked for before the previous record was taken.

        :param specs: None among them means that the next spec depends on a record not yet taken;
            the iterator is asked again then.
        :raises Interrupted: once a stop was asked for and what ran has ended; a second request ends
            that, and loses only the trials that run.
        :raises AutoresearchError: if the machinery fails, which is not a result, once the other
            running trials have ended.
        """
        left, running = iter(specs), deque[asyncio.Task[TrialRecord]]()
        try:
            while True:
                if not (running and self.stop.asked):
                    self._fill(running, left)
                if not running:
                    return
                if not running[0].done():
                    going = [one for one in running if not one.done()]
                    await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
                while running and running[0].done():
                    record = await self.record(running.popleft())
                    self.claimed([record])
                    take(record)
        finally:
            # Once they have ended, their results are on disk for reuse.
            await asyncio.gather(*running, return_exceptions=True)

    def _fill(
        self,
        running: deque[asyncio.Task[TrialRecord]],
        left: Iterator[tuple[TrialSpec, Role] | None],
    ) -> None:
        """Start trials until every lane is busy; finished trials that wait for their turn hold no
        lane."""
        while sum(not one.done() for one in running) < self.places:
            if any(one.done() and one.exception() for one in running):
                return  # a failure of the machinery would be repeated
            if (wanted := next(left, None)) is None:
                return
            running.append(self.begin(*wanted))

    def begin(self, spec: TrialSpec, role: Role) -> asyncio.Task[TrialRecord]:
        """Start the trial of this spec, its trial_id empty, or reuse its result; return at once.

        Two races that want the same trial share it until a row holds it.

        :raises Interrupted: once a stop was asked for, if the trial would have to run.
        """
        if spec not in self._unclaimed:
            job, hooks = self._started(spec, role)
            self._unclaimed[spec] = asyncio.create_task(self._ended(job, hooks, role))
        return self._unclaimed[spec]

    @staticmethod
    async def record(trial: asyncio.Task[TrialRecord]) -> TrialRecord:
        """Wait for a trial's end, and return its record.

        :raises Interrupted: if it was cancelled.
        :raises AutoresearchError: if the machinery failed.
        """
        try:
            return await trial
        except TrialAborted as aborted:
            raise Interrupted("stopped at once; what was running is lost") from aborted

    def claimed(self, records: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
        """Return those of the records that no row holds, for a row that is about to be written. A
        trial that two races wanted belongs to the row of the first that ends."""
        ended = {
            trial.result().trial_id: spec
            for spec, trial in self._unclaimed.items()
            if trial.done() and not trial.exception()
        }
        mine = tuple(record for record in records if record.trial_id in ended)
        for record in mine:
            del self._unclaimed[ended[record.trial_id]]
        return mine

    def _started(self, spec: TrialSpec, role: Role) -> tuple[Job, Sequence[EndHook]]:
        if spec in self.orphaned.finished:
            trial_id, result = self.orphaned.finished.pop(spec)
            self.resumed.add(trial_id)
            trial_dir = self._directory / trial_id
            job = Job(spec.model_copy(update={"trial_id": trial_id}), trial_dir)
            job.succeed(Finished(result, wall_s(trial_dir, spec.limits.wall_s)))
            return job, ()
        self.stop.check()
        self._last_number += 1
        trial_id = nth_trial_id(self._last_number)
        spec = spec.model_copy(update={"trial_id": trial_id})
        self._watcher.trial_started(spec, role)
        hooks = [hook(self._directory / trial_id) for hook in self._hooks]
        return self._executor.submit(spec, self._directory / trial_id), hooks

    async def _ended(self, job: Job, hooks: Sequence[EndHook], role: Role) -> TrialRecord:
        """Follow a trial to its end, and return its record. A second stop request cancels it.

        :raises TrialAborted: if it was cancelled.
        :raises AutoresearchError: if the machinery failed.
        """
        ended, shown = asyncio.wrap_future(job.ended), None
        try:
            while not ended.done():
                await self._executor.wait(ended, POLL_S)
                shown = self._report(job, shown)
                if self.stop.at_once():
                    job.cancel()
        except BaseException:
            job.cancel()
            with suppress(Exception):  # whatever ends here, something else is raised
                await asyncio.wait_for(ended, CANCEL_S)
            raise
        finished = ended.result()
        for hook in hooks:
            finished = hook(finished)
        spec = job.spec
        record = TrialRecord(
            trial_id=spec.trial_id,
            role=role,
            config_hash=spec.config.config_hash,
            seed=spec.seed,
            result=finished.result,
            wall_s=finished.wall_s,
            place=finished.place,
            at=None if finished.place is None else timestamp(),
        )
        self._watcher.trial_ended(record)
        return record

    def _report(self, job: Job, shown: Place | None) -> Place | None:
        """Report a trial's lane, if it is another than the one shown, and its new curve points;
        return the lane."""
        trial_id, place = job.spec.trial_id, job.place()
        if place is not None and place != shown:
            self._watcher.trial_placed(trial_id, place)
        for point in job.points():
            self._running[trial_id] = job.spec, point
            self._watcher.trial_point(trial_id, point)
        if job.done():
            self._running.pop(trial_id, None)
        return place

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
