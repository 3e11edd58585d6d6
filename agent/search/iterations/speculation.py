"""Trials that races may want next, on lanes that would stand idle.

A race decides on its seeds in their order, so that nothing of a decision depends on which trial
ended first: what ran ahead is kept until the race wants it. What it turns out not to want counts
for nothing, and is said so. A lane that a wanted trial waits for is given up at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, field

from agent.search.iterations.iteration import Iteration
from agent.search.stopping import Interrupted
from agent.search.trials import Trial, TrialRunner
from trainer.spec import TrialSpec
from trajectory.rows import Role, TrialRecord


@dataclass(slots=True)
class Speculation:
    """Those of one flight."""

    runner: TrialRunner
    running: dict[Trial, Iteration] = field(default_factory=dict)
    """With the iteration whose race may want it, in the order in which they began."""
    _by_spec: dict[TrialSpec, Trial] = field(default_factory=dict)
    """Those that run, by the spec without its id."""
    _ended: dict[TrialSpec, tuple[Iteration, TrialRecord]] = field(default_factory=dict)
    """Whose race has not come to it, likewise."""
    _leaving: set[Trial] = field(default_factory=set)
    """Cancelled, and not over yet."""
    _unneeded: list[str] = field(default_factory=list)

    @property
    def leaving(self) -> Collection[Trial]:
        """Those that were cancelled, and hold their lanes still."""
        return self._leaving

    def begin(self, iterations: Collection[Iteration], places: int, known: Set[TrialSpec]) -> None:
        """As many as there is room for: of every race what it would want first, then what next.

        :param known: specs of trials that run, or have ended, for another reason.
        """
        for iteration, spec, role in self._next(iterations):
            if places <= 0:
                return
            if spec in known or spec in self._ended or spec in self._by_spec:
                continue
            try:
                trial = self.runner.begin(spec, role)
            except Interrupted:
                return  # nothing begins any more
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
        """That of this spec, which a race wants now: it is no longer speculative."""
        if spec in self._ended:
            return self._ended.pop(spec)[1]
        trial = self._by_spec.pop(spec, None)
        if trial is not None:
            del self.running[trial]
        return trial

    def cancel_surplus(self, places: int) -> None:
        """End those that are too many, the latest first.

        :param room: places that nothing else wants.
        """
        while len(self.running) > max(0, places):
            self._cancel(next(reversed(self.running)))

    def drop(self, iteration: Iteration) -> None:
        """Its race is over: nobody will come for the others."""
        for trial in [one for one, of in self.running.items() if of is iteration]:
            self._cancel(trial)
        for spec in [one for one, (of, _) in self._ended.items() if of is iteration]:
            self._unneeded.append(self._ended.pop(spec)[1].trial_id)

    def end(self, trial: Trial) -> None:
        """It is over.

        :raises AutoresearchError: where the machinery failed.
        """
        if trial in self._leaving:
            self._leaving.discard(trial)
            self.runner.given_up(trial)
            return
        iteration = self.running.pop(trial)
        spec = self._forgotten(trial)
        self._ended[spec] = (iteration, self.runner.ended(trial))

    def unneeded(self) -> list[str]:
        """Trials that count for nothing, each told once."""
        unneeded, self._unneeded = self._unneeded, []
        return unneeded

    def _cancel(self, trial: Trial) -> None:
        del self.running[trial]
        self._forgotten(trial)
        trial.cancel()
        self._leaving.add(trial)
        self._unneeded.append(trial.spec.trial_id)

    def _forgotten(self, trial: Trial) -> TrialSpec:
        """Its spec, by which it is found no more."""
        spec = trial.spec.model_copy(update={"trial_id": ""})
        del self._by_spec[spec]
        return spec
