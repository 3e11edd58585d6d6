"""A forest in place of the Gaussian process: extremely randomised trees (Geurts, Ernst and Wehenkel
2006), as SMAC and scikit-optimize use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

from agent.proposers.surrogate.scales import Floats

TREES = 40
FLOOR = 1e-3
"""Of the standard deviation: trees that agree on a value need not know it."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees that were each grown on all that was measured, with cuts drawn by chance."""

    trees: Any

    @classmethod
    def fit(
        cls, points_NP: Floats, target_N: Floats, variance_N: Floats, _knobs: NDArray[np.intp]
    ) -> Forest:
        """Leaves of two configs at least, weighed by how many runs each has."""
        trees = ExtraTreesRegressor(TREES, min_samples_leaf=2, random_state=0)
        weight_N = 1 / np.maximum(variance_N, FLOOR**2)
        return cls(trees.fit(points_NP, target_N, weight_N / weight_N.mean()))

    def about(self, points_NP: Floats, target_N: Floats, variance_N: Floats) -> Forest:
        """See :class:`agent.proposers.surrogate.promise.Surrogate`."""
        return self.fit(points_NP, target_N, variance_N, np.empty(0, dtype=np.intp))

    def predict(self, points_MP: Floats) -> tuple[Floats, Floats]:
        """See :class:`agent.proposers.surrogate.promise.Surrogate`."""
        points = points_MP.astype(np.float32)
        by_tree_TM = np.array([tree.predict(points) for tree in self.trees.estimators_])
        return by_tree_TM.mean(axis=0), np.maximum(by_tree_TM.std(axis=0), FLOOR)
