"""Predict the loss of a finished run from its parameters and tokens, with an interval.

The law ``L(N, D) = E + A N^-alpha + B D^-beta`` (Hoffmann et al. 2022, arXiv 2203.15556) is fitted
to runs that were annealed to their end (:mod:`funnel.forecast.scaling_fit`). The interval of a
prediction covers three uncertainties:

- The parameters of the law. Each replicate is fitted to the fitted losses plus newly drawn scatter.
  The size of the scatter is drawn from its own uncertainty, and the prior means are drawn too.
- The run. A prediction is for a single run, so it includes the scatter once more.
- The form. The law need not hold far beyond the runs. A backtest fits it to the smaller runs and
  predicts the larger ones. Its error beyond its own interval is ``drift_per_doubling``; the
  interval widens by that much with each doubling of compute past the largest run.
"""

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from autoresearch.values import Frozen, NonNegative, NonNegativeInt, Positive, PositiveInt
from funnel.forecast.robust_fit import Array

COVERAGE = 0.95


class FinishedRun(Frozen):
    """A run that was annealed to its end."""

    params: Positive
    """Parameters without embeddings."""
    tokens: Positive
    loss: Positive
    """Final loss in bits per byte or nats, in the same unit for all runs."""

    @property
    def compute(self) -> float:
        """Training compute, ``6 N D``, in FLOPs."""
        return 6 * self.params * self.tokens


class ScalingLaw(Frozen):
    """The law ``E + A N^-alpha + B D^-beta``."""

    floor: NonNegative
    a: NonNegative
    alpha: Positive
    b: NonNegative
    beta: Positive

    def at(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Return the loss of a finished run."""
        n, d = np.asarray(params, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
        loss: Array = self.floor + self.a * n**-self.alpha + self.b * d**-self.beta
        return loss


class Exponents(Frozen):
    """95 % intervals of the exponents over the replicates."""

    alpha_low: Positive
    alpha_high: Positive
    beta_low: Positive
    beta_high: Positive
    correlation: float
    """Correlation of the logarithms of the exponents over the replicates."""


class ScalingFit(Frozen):
    """A fitted law, its replicates, and its scatter and drift."""

    law: ScalingLaw
    replicates: tuple[ScalingLaw, ...]
    scatter: NonNegative
    """Relative sd of one run about the law."""
    drift_per_doubling: NonNegative
    """Relative error per doubling of compute beyond the largest run."""
    runs: PositiveInt
    largest_compute: Positive
    backtests: NonNegativeInt
    """Number of sizes that the law was backtested on."""

    def predict(self, params: ArrayLike, tokens: ArrayLike) -> tuple[Array, Array, Array]:
        """Return low, middle and high loss of a finished run: its 95 % interval and median."""
        loss_RP = self.draws(params, tokens)
        tail = 100 * (1 - COVERAGE) / 2
        low, middle, high = np.percentile(loss_RP, [tail, 50.0, 100 - tail], axis=0)
        return low, middle, high

    def draws(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Return the loss of a run of this size by each replicate, ``(R, …)``.

        Each replicate has its own draw of the scatter and of the drift.
        """
        n, d = np.broadcast_arrays(
            np.asarray(params, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
        )
        floor, a, alpha, b, beta = self._columns
        shape = (-1, *([1] * n.ndim))
        mean = floor.reshape(shape) + a.reshape(shape) * n ** -alpha.reshape(shape)
        mean = mean + b.reshape(shape) * d ** -beta.reshape(shape)
        loss: Array = mean * np.exp(
            self._luck.reshape(shape) * self.scatter
            + self._drift.reshape(shape) * self.drift_per_doubling * self.doublings(n, d)
        )
        return loss

    def doublings(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Return the doublings of compute beyond the largest run; 0 for smaller runs."""
        compute = 6 * np.asarray(params, dtype=np.float64) * np.asarray(tokens, dtype=np.float64)
        beyond: Array = np.maximum(np.log2(compute / self.largest_compute), 0.0)
        return beyond

    @property
    def exponents(self) -> Exponents:
        """The exponents' intervals and correlation."""
        _, _, alpha, _, beta = self._columns
        tail = 100 * (1 - COVERAGE) / 2
        alpha_low, alpha_high = np.percentile(alpha, [tail, 100 - tail])
        beta_low, beta_high = np.percentile(beta, [tail, 100 - tail])
        return Exponents(
            alpha_low=float(alpha_low),
            alpha_high=float(alpha_high),
            beta_low=float(beta_low),
            beta_high=float(beta_high),
            correlation=float(np.corrcoef(np.log(alpha), np.log(beta))[0, 1]),
        )

    @cached_property
    def _columns(self) -> Array:
        laws = [(law.floor, law.a, law.alpha, law.b, law.beta) for law in self.replicates]
        return np.array(laws).T

    @cached_property
    def _luck(self) -> Array:
        return np.random.default_rng(1).standard_normal(len(self.replicates))

    @cached_property
    def _drift(self) -> Array:
        # Few backtests determine the drift, so normal tails would be too narrow.
        freedom = max(3, self.backtests)
        return np.random.default_rng(2).standard_t(freedom, len(self.replicates))
