"""What stands for training: regressions of the score, and of whether there is one, on the knobs.

Families, so that no search is judged by the quirks of one: extremely randomised trees (Geurts et
al. 2006) about a quadratic trend; a small ensemble of networks; a Gaussian process. Which of them a
world is made with is a matter of what they say of runs that they were not shown.
Scores are learned as ``log(score - floor)``, which spreads the good ones, among which a search
ends, and keeps every prediction above the floor.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from scipy.stats import spearmanr
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import RidgeCV
from sklearn.neural_network import MLPRegressor

from bench.simulator.encoding import Matrix

Vector: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Family: TypeAlias = Literal["forest", "mlp", "gp"]

TREES = 200
NETWORKS = 4
FOLDS = 5


class Model(Protocol):
    """A fitted regression."""

    def predict(self, rows: Matrix) -> Vector: ...


class Forest:
    """Extremely randomised trees, asked one by one: quick for a single row, too."""

    def __init__(
        self,
        rows: Matrix,
        targets: Matrix | Vector,
        trees: int = TREES,
        *,
        leaf: int = 1,
        weights: Vector | None = None,
    ) -> None:
        """
        :param leaf: rows of a leaf, at least.
        :param weights: of the rows; None: all alike.
        """
        fitted = ExtraTreesRegressor(trees, min_samples_leaf=leaf, random_state=0)
        self._trees = [tree.tree_ for tree in fitted.fit(rows, targets, weights).estimators_]

    def predict(self, rows: Matrix) -> Vector:
        """Of one target a number a row; of several, a row of them."""
        narrow = np.ascontiguousarray(rows, dtype=np.float32)
        answers = [tree.predict(narrow) for tree in self._trees]
        mean: Vector = np.mean(answers, axis=0).reshape(len(rows), -1)
        return mean[:, 0] if mean.shape[1] == 1 else mean


class TrendAndForest:
    """A ridge regression on every column and its square, and trees for what that leaves: trees
    alone draw what they have not seen towards the middle, and rank worse what they were not shown
    on both tables."""

    def __init__(self, rows: Matrix, targets: Vector) -> None:
        fitted = RidgeCV(np.logspace(-2, 3, 11)).fit(_squared(rows), targets)
        self._slopes, self._level = fitted.coef_, float(fitted.intercept_)
        self._rest = Forest(rows, targets - self._trend(rows))

    def predict(self, rows: Matrix) -> Vector:
        """A number a row."""
        answer: Vector = self._trend(rows) + self._rest.predict(rows)
        return answer

    def _trend(self, rows: Matrix) -> Vector:
        trend: Vector = _squared(rows) @ self._slopes + self._level
        return trend


def _squared(rows: Matrix) -> Matrix:
    around: Matrix = 2 * rows - 1
    return np.hstack([around, around**2])


class Networks:
    """The mean of some networks of two hidden layers."""

    def __init__(self, rows: Matrix, targets: Vector) -> None:
        self._mean, self._sd = float(targets.mean()), float(targets.std()) or 1.0
        scaled = (targets - self._mean) / self._sd
        self._layers = []
        for seed in range(NETWORKS):
            network = MLPRegressor(
                hidden_layer_sizes=(48, 48),
                alpha=0.1,
                learning_rate_init=3e-3,
                batch_size=64,
                max_iter=200,
                random_state=seed,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # that many rounds do
                network.fit(2 * rows - 1, scaled)
            self._layers.append(list(zip(network.coefs_, network.intercepts_, strict=True)))

    def predict(self, rows: Matrix) -> Vector:
        """A number a row."""
        mean: Vector = np.mean([_forward(2 * rows - 1, layers) for layers in self._layers], axis=0)
        return self._mean + self._sd * mean


class Process:
    """A Gaussian process: what every column says with a length scale of its own, what all of them
    say together, and noise. The scales are found on some of the configs."""

    FITTED = 350

    def __init__(self, rows: Matrix, targets: Vector) -> None:
        columns = rows.shape[1]
        apart = ConstantKernel(1.0) * Matern(np.ones(columns), (0.05, 30.0), nu=2.5)
        together = ConstantKernel(1.0) * Matern(3.0, (0.3, 60.0), nu=2.5)
        kernel = apart + together + WhiteKernel(0.05, (1e-6, 1.0))
        some = np.random.default_rng(0).permutation(len(rows))[: self.FITTED]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a scale at its bound is an answer
            fitted = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
            fitted.fit(rows[some], targets[some])
        self._process = GaussianProcessRegressor(fitted.kernel_, normalize_y=True, optimizer=None)
        self._process.fit(rows, targets)

    def predict(self, rows: Matrix) -> Vector:
        """A number a row."""
        answer: Vector = self._process.predict(rows)
        return answer


def _forward(rows: Matrix, layers: list[tuple[Matrix, Vector]]) -> Vector:
    *hidden, (out, bias) = layers
    for weights, shift in hidden:
        rows = np.maximum(rows @ weights + shift, 0)
    answer: Vector = (rows @ out + bias)[:, 0]
    return answer


FAMILIES: dict[Family, Callable[[Matrix, Vector], Model]] = {
    "forest": TrendAndForest,
    "mlp": Networks,
    "gp": Process,
}


class ScoreModel:
    """The score without noise."""

    def __init__(self, family: Family, rows: Matrix, scores: Vector) -> None:
        least = float(scores.min())
        self._floor = least - max(0.5 * (float(np.median(scores)) - least), 1e-6)
        self._model = FAMILIES[family](rows, np.log(scores - self._floor))

    def predict(self, rows: Matrix) -> Vector:
        """A score a row."""
        answer: Vector = self._floor + np.exp(self._model.predict(rows))
        return answer


class FailureModel:
    """Whether a config can be trained at all; anything can where nothing was seen to fail."""

    LEAST = 20
    """Configs that failed, from which on there is something to learn."""

    def __init__(self, rows: Matrix, failed: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        self._trees: list[Any] = []
        if self.LEAST <= int(failed.sum()) < len(failed):
            fitted = ExtraTreesClassifier(100, min_samples_leaf=2, random_state=0)
            self._trees = [tree.tree_ for tree in fitted.fit(rows, failed).estimators_]

    def fails(self, rows: Matrix) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether more than half of what is known says so, for each row."""
        if not self._trees:
            return np.zeros(len(rows), dtype=np.bool_)
        narrow = np.ascontiguousarray(rows, dtype=np.float32)
        shares = [tree.predict(narrow)[:, 1] for tree in self._trees]
        verdict: np.ndarray[Any, np.dtype[np.bool_]] = np.mean(shares, axis=0) > 0.5
        return verdict


@dataclass(frozen=True, slots=True)
class Validation:
    """How well a surrogate tells configs that it was not shown."""

    configs: int
    rmse: float
    """Of the score, over all."""
    rank: float
    """Spearman's correlation, over all."""
    rmse_best: float
    """Over the best tenth, by what was measured."""
    rank_best: float
    """Within the best quarter."""
    predicted: Vector
    """For each config, by the model that was not shown it."""


def validated(family: Family, rows: Matrix, scores: Vector) -> Validation:
    """Cross-validated in FOLDS parts."""
    folds = np.random.default_rng(0).permutation(len(scores)) % FOLDS
    predicted = np.empty_like(scores)
    for fold in range(FOLDS):
        shown = folds != fold
        model = ScoreModel(family, rows[shown], scores[shown])
        predicted[~shown] = model.predict(rows[~shown])
    order = np.argsort(scores)
    tenth, quarter = order[: max(len(order) // 10, 3)], order[: max(len(order) // 4, 5)]
    return Validation(
        configs=len(scores),
        rmse=_rmse(predicted - scores),
        rank=float(spearmanr(predicted, scores).statistic),
        rmse_best=_rmse((predicted - scores)[tenth]),
        rank_best=float(spearmanr(predicted[quarter], scores[quarter]).statistic),
        predicted=predicted,
    )


def _rmse(errors: Vector) -> float:
    return float(np.sqrt(np.mean(errors**2)))
