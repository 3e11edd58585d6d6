"""What an edit of the reference promises: how much better than the reference it can be expected to
be, times the chance that it trains at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent.proposers.base import Memory
from agent.proposers.surrogate.neighbours import Edit, Neighbourhood
from agent.proposers.surrogate.space import Floats, Space, Values
from agent.proposers.surrogate.told import Scores, Told
from trainer.spec import AnyConfig

EDITS = 400
"""Drawn at first."""
PROMISING, VARIATIONS = 10, 12
"""Of the first draws, those that are varied, and how often each."""
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
    unit: float
    """Bits per byte in one unit of the scores."""
    elites: tuple[Values, ...]

    @classmethod
    def of(
        cls, memory: Memory, told: Told, priors: Sequence[tuple[Values, float]], fit: Fit
    ) -> Self:
        """
        :param priors: configs of earlier campaigns and what they would score here.
        """
        space = Space.of(memory.menu.domains)
        seen = Scores.of(memory, space, told.measured, priors)
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
        return cls(space, around, model, failing, bar, seen.unit, elites)

    def edits(self, rng: Random) -> list[Edit]:
        """Edits of the reference, the most promising first: some drawn, and the best of those
        varied."""
        around = self.neighbourhood
        first = self._ranked(around.drawn(rng, self.elites, EDITS))
        more = [around.varied(rng, edit) for edit in first[:PROMISING] for _ in range(VARIATIONS)]
        return self._ranked([*first, *(edit for edit in more if edit)])

    def says(self, edit: Edit) -> str:
        """What is expected of an edit, in bits per byte."""
        mean_M, sd_M = self.scores.predict(self.space.edited(self.neighbourhood.now, [edit]))
        delta, sd = self.unit * (mean_M[0] - self.bar), self.unit * sd_M[0]
        return f"{delta:+.3f} ± {sd:.3f} bpb expected"

    def _ranked(self, edits: Sequence[Edit]) -> list[Edit]:
        if not edits:
            return []
        points_MP = self.space.edited(self.neighbourhood.now, edits)
        promise_M = expected_improvement(*self.scores.predict(points_MP), self.bar)
        if self.failing is not None:
            promise_M = promise_M * (1 - np.clip(self.failing.predict(points_MP)[0], 0, 1))
        return [edits[place] for place in np.argsort(-promise_M, kind="stable")]


def _points(memory: Memory, space: Space, configs: Sequence[AnyConfig]) -> Floats:
    values = [memory.menu.knob_values(config) for config in configs]
    return space.points([one for one in values if space.contains(one)])


def expected_improvement(mean_M: Floats, sd_M: Floats, bar: float) -> Floats:
    """By how much a normal variable falls below the bar, in the mean (Mockus, Tiesis and Zilinskas
    1978)."""
    z_M = (bar - mean_M) / sd_M
    below_M = 0.5 * np.array([math.erfc(-z / math.sqrt(2)) for z in z_M.tolist()])
    density_M = np.exp(-0.5 * z_M**2) / math.sqrt(2 * math.pi)
    improvement_M: Floats = (bar - mean_M) * below_M + sd_M * density_M
    return improvement_M
