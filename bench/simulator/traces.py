"""Learning curves and times, as far as a table has them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from bench.simulator.encoding import Matrix
from bench.simulator.surrogate import Forest, Vector

TREES = 60
ANCHORS = 16
"""Stretches of the curve whose mean is predicted, shorter at its beginning."""


class TraceModel:
    """The curve and the seconds of a run, from its knobs and the score that it came to.

    A forest of both: a run that did worse than its config should has the curve of one that did. Its
    steps scatter about that as those of the table's runs do about theirs.
    """

    def __init__(
        self, rows: Matrix, scores: Vector, curves: Sequence[Sequence[float]], train_s: Vector
    ) -> None:
        """
        :param curves: all of them as long as each other.
        """
        losses = np.array(curves, dtype=np.float64)
        self._steps = losses.shape[1]
        self._edges = _edges(self._steps)
        means = np.array([losses[:, a:b].mean(axis=1) for a, b in pairwise(self._edges)]).T
        targets = np.column_stack([means, np.log(np.maximum(train_s, 1e-3))])
        self._forest = Forest(np.column_stack([rows, scores]), targets, TREES)
        self._scatter = (losses - self._drawn(means)).std(axis=0)

    def of(
        self, row: Vector, score: float, config_hash: str, seed: int
    ) -> tuple[list[float], float]:
        """Losses of every step, and seconds."""
        answer = self._forest.predict(np.append(row, score)[None])[0]
        digest = hashlib.sha256(f"trace:{config_hash}:{seed}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        losses = self._drawn(answer[None, :-1])[0]
        losses = np.maximum(losses + self._scatter * rng.standard_normal(self._steps), 0.0)
        return losses.tolist(), float(np.exp(answer[-1]))

    def _drawn(self, means: Matrix) -> Matrix:
        """Straight lines through the stretches' middles."""
        edges = np.array(self._edges)
        middles, steps = (edges[:-1] + edges[1:] - 1) / 2, np.arange(self._steps)
        return np.array([np.interp(steps, middles, one) for one in means])


def _edges(steps: int) -> list[int]:
    """Where the stretches begin, and the end of the last."""
    shares = np.linspace(0, 1, ANCHORS + 1) ** 1.5
    return sorted({round(float(share) * steps) for share in shares})
