"""Runs trials for a campaign: gives them ids and directories, and loses none of them.

A trial's spec.json is on disk before it starts and the row that holds its result comes after it
ends, so whatever has a directory and is named by no row was in flight when the campaign last
stopped. What had finished is taken up again where the same spec is asked for; what had not is
reported as interrupted. Nothing is dropped in silence, and nothing counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agent.search.stopping import Interrupted, StopRequest
from autoresearch.files import writing_to
from autoresearch.layout import is_trial_id, nth_trial_id, trial_number
from trainer.executors.base import Executor, TrialAborted
from trainer.isolation.trial_files import finished_trial, read_curve, wall_s
from trainer.spec import AnyConfig, CurvePoint, Measured, PruneRule, TrialFailed, TrialSpec
from trajectory.rows import Role, TrialRecord


class TrialWatcher(Protocol):
    """Whoever shows a running trial to a person."""

    def trial_started(self, spec: TrialSpec, role: Role) -> None: ...
    def trial_point(self, point: CurvePoint) -> None: ...
    def trial_ended(self, record: TrialRecord) -> None: ...


@dataclass(slots=True)
class Leftovers:
    """Trials with a directory that no row names."""

    finished: dict[TrialSpec, tuple[str, Measured | TrialFailed]] = field(default_factory=dict)
    """By their spec without its id: the id, and the result to take up."""
    unfinished: list[str] = field(default_factory=list)

    def give_up(self, those: Callable[[TrialSpec], bool]) -> list[str]:
        """Forget the finished trials of some kind, which nothing will ask for any more; their
        ids, for a row to name."""
        given_up = [spec for spec in self.finished if those(spec)]
        return [self.finished.pop(spec)[0] for spec in given_up]


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
        self._stop = stop
        self._watcher = watcher
        self._curves: dict[str, list[CurvePoint]] = {}
        """The curves of references, which every race asks for again."""
        self.taken_up: set[str] = set()
        """Trials run before the last stop whose results were used since."""
        self._last_number = max(map(trial_number, on_disk | accounted), default=0)
        self.leftovers = _read_leftovers(directory, sorted(on_disk - accounted, key=trial_number))

    def run(
        self, config: AnyConfig, seed: int, role: Role, prune: PruneRule | None = None
    ) -> TrialRecord:
        """One trial, taken up from before the last stop where it had finished.

        :raises Interrupted: between trials once a stop was asked for, or within one once a second
            was; the latter loses that trial and no other.
        :raises AutoresearchError: when the machinery fails, which is no result.
        """
        return self.run_spec(self._template(config, seed).model_copy(update={"prune": prune}), role)

    def run_spec(self, spec: TrialSpec, role: Role) -> TrialRecord:
        """The trial of this spec, its trial_id empty; see :meth:`run`."""
        taken_up = self.leftovers.finished.pop(spec, None)
        if taken_up is not None:
            trial_id, result = taken_up
            trial_wall_s = wall_s(self._directory / trial_id, spec.limits.wall_s)
            self.taken_up.add(trial_id)
        else:
            self._stop.check()
            self._last_number += 1
            trial_id = nth_trial_id(self._last_number)
            spec = spec.model_copy(update={"trial_id": trial_id})
            self._watcher.trial_started(spec, role)
            try:
                with self._stop.deferred():
                    finished = self._executor.run(
                        spec,
                        self._directory / trial_id,
                        on_point=self._watcher.trial_point,
                        should_stop=self._stop.at_once,
                    )
            except TrialAborted as aborted:
                raise Interrupted("stopped at once; the running trial is lost") from aborted
            result, trial_wall_s = finished.result, finished.wall_s
        record = TrialRecord(
            trial_id=trial_id,
            role=role,
            config_hash=spec.config.config_hash,
            seed=spec.seed,
            result=result,
            wall_s=trial_wall_s,
        )
        self._watcher.trial_ended(record)
        return record

    def curve(self, trial_id: str) -> list[CurvePoint]:
        """The learning curve a trial left; empty where it left none that can be read."""
        if trial_id not in self._curves:
            self._curves[trial_id] = read_curve(self._directory / trial_id)
        return self._curves[trial_id]


def _read_leftovers(directory: Path, names: list[str]) -> Leftovers:
    leftovers = Leftovers()
    for name in names:
        finished = finished_trial(directory / name)
        if finished is None:
            leftovers.unfinished.append(name)
            continue
        spec, result = finished
        unnamed = spec.model_copy(update={"trial_id": ""})
        if leftovers.finished.setdefault(unnamed, (name, result))[0] != name:
            leftovers.unfinished.append(name)  # the same spec twice: one of them is enough
    return leftovers
