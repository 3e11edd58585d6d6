"""What a surrogate knows of a campaign: scores, the chance to fail, and where good ones lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent.proposers.base import Memory
from agent.proposers.sampler import Told
from bench.searches.surrogate.neighbours import Neighbourhood
from bench.searches.surrogate.space import Floats, Space, Values
from bench.searches.surrogate.told import Scores
from trainer.spec import AnyConfig

ELITES = 8
"""Configs to learn single values from."""
FAILURE_VARIANCE = 0.05
"""Of a config's having failed or not, as a sign of the chance that its neighbours do."""
CERTAIN = 1e-4


class Surrogate(Protocol):
    """A model that was fitted to scores at points."""

    def predict(self, points_MP: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation at other points, the noise of a run not included."""
        ...

    def about(self, points_NP: Floats, target_N: Floats, variance_N: Floats) -> Self:
        """One as smooth as this about something else, or about the same with more to go by."""
        ...


Fit: TypeAlias = Callable[[Floats, Floats, Floats, NDArray[np.intp]], Surrogate]
"""Of points, targets, the targets' variances, and the knob that each coordinate belongs to."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A surrogate of one campaign as it stands, asked about edits of its reference."""

    space: Space
    neighbourhood: Neighbourhood
    scores: Surrogate
    failing: Surrogate | None
    """Of the chance to fail; None where nothing has."""
    bar: float
    """The reference's score as the surrogate believes it."""
    elites: tuple[Values, ...]

    @classmethod
    def of(cls, memory: Memory, told: Told, fit: Fit) -> Self:
        space = Space.of(memory.menu.domains)
        seen = Scores.of(memory, space, told.measured)
        model = fit(seen.points, seen.targets, seen.variances, space.knobs)
        failed = _points(memory, space, [entry.config for entry in told.failed])
        failing = None
        if len(failed):
            both = np.concatenate([seen.points, failed])
            share = np.repeat([0.0, 1.0], [len(seen.points), len(failed)])
            failing = model.about(both, share, np.full(len(both), FAILURE_VARIANCE))
        order = np.argsort(model.predict(seen.points)[0], kind="stable")[: ELITES + 1]
        pending = _points(memory, space, memory.pending)
        if len(pending):  # taken to score what is expected of them, so that others look elsewhere
            model = model.about(
                np.concatenate([seen.points, pending]),
                np.concatenate([seen.targets, model.predict(pending)[0]]),
                np.concatenate([seen.variances, np.full(len(pending), CERTAIN)]),
            )
        around = Neighbourhood.of(memory)
        bar = float(model.predict(space.points([around.now]))[0][0])
        elites = tuple(seen.values[place] for place in order if seen.values[place] != around.now)
        return cls(space, around, model, failing, bar, elites)


def _points(memory: Memory, space: Space, configs: Sequence[AnyConfig]) -> Floats:
    values = [memory.menu.knob_values(config) for config in configs]
    return space.points([one for one in values if space.contains(one)])
