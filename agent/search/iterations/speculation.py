"""Run speculative trials, which races may want next, on idle lanes.

A race decides on its seeds in order, so no decision depends on which trial ended first. A finished
speculative trial is kept until its race wants it; one never wanted counts for nothing and is
recorded as such. A wanted trial takes a speculative trial's lane at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, field

from agent.search.iterations.iteration import Iteration
from agent.search.stopping import Interrupted
from agent.search.trial import Trial
from agent.search.trials import TrialRunner
from trainer.spec import TrialSpec
from trajectory.rows import Role, TrialRecord


@dataclass(slots=True)
class Speculation:
    """Speculative trials of one scheduler."""

    runner: TrialRunner
    running: dict[Trial, Iteration] = field(default_factory=dict)
    """Running trials and the iteration whose race may want each, in the order of their starts."""
    _by_spec: dict[TrialSpec, Trial] = field(default_factory=dict)
    """Running trials by their spec without its id."""
    _ended: dict[TrialSpec, tuple[Iteration, TrialRecord]] = field(default_factory=dict)
    """Finished trials that their race has not reached, by the same key."""
    _leaving: set[Trial] = field(default_factory=set)
    """Cancelled trials that have not ended yet."""
    _unneeded: list[str] = field(default_factory=list)

    @property
    def leaving(self) -> Collection[Trial]:
        """Cancelled trials that still hold their lanes."""
        return self._leaving

    def begin(self, iterations: Collection[Iteration], places: int, known: Set[TrialSpec]) -> None:
        """Start trials until no place is free: first what each race wants next, then what follows.

        :param known: specs of trials that run or have ended as wanted ones.
        """
        for iteration, spec, role in self._next(iterations):
            if places <= 0:
                return
            if spec in known or spec in self._ended or spec in self._by_spec:
                continue
            try:
                trial = self.runner.begin(spec, role)
            except Interrupted:
                return  # a stop was asked for: nothing starts
            self.running[trial] = iteration
            self._by_spec[spec] = trial
            places -= 1

    def _next(
        self, iterations: Collection[Iteration]
    ) -> Iterator[tuple[Iteration, TrialSpec, Role]]:
        deepest = max((len(iteration.then) for iteration in iterations), default=0)
        for depth in range(deepest):
            for iteration in iterations:
                if depth < len(iteration.then):
                    wanted = iteration.then[depth]
                    yield (
                        iteration,
                        self.runner.spec(wanted.config, wanted.seed, wanted.prune),
                        wanted.role,
                    )

    def taken(self, spec: TrialSpec) -> Trial | TrialRecord | None:
        """Return the trial of a spec that a race wants now, which is then no longer speculative."""
        if spec in self._ended:
            return self._ended.pop(spec)[1]
        trial = self._by_spec.pop(spec, None)
        if trial is not None:
            del self.running[trial]
        return trial

    def cancel_surplus(self, places: int) -> None:
        """Cancel surplus trials, newest first.

        :param places: lanes that nothing else needs.
        """
        while len(self.running) > max(0, places):
            self._cancel(next(reversed(self.running)))

    def drop(self, iteration: Iteration) -> None:
        """Cancel or forget the trials of an iteration whose race is over."""
        for trial in [one for one, of in self.running.items() if of is iteration]:
            self._cancel(trial)
        for spec in [one for one, (of, _) in self._ended.items() if of is iteration]:
            self._unneeded.append(self._ended.pop(spec)[1].trial_id)

    def end(self, trial: Trial) -> None:
        """Record that a trial has ended.

        :raises AutoresearchError: if the machinery failed.
        """
        if trial in self._leaving:
            self._leaving.discard(trial)
            self.runner.given_up(trial)
            return
        iteration = self.running.pop(trial)
        spec = self._forgotten(trial)
        self._ended[spec] = (iteration, self.runner.ended(trial))

    def unneeded(self) -> list[str]:
        """Return trials that count for nothing, each once."""
        unneeded, self._unneeded = self._unneeded, []
        return unneeded

    def _cancel(self, trial: Trial) -> None:
        del self.running[trial]
        self._forgotten(trial)
        trial.cancel()
        self._leaving.add(trial)
        self._unneeded.append(trial.spec.trial_id)

    def _forgotten(self, trial: Trial) -> TrialSpec:
        """Remove a running trial from the lookup and return its spec without the id."""
        spec = trial.spec.model_copy(update={"trial_id": ""})
        del self._by_spec[spec]
        return spec
