"""Predict the loss of a finished run from its parameters and tokens, with an interval.

The law ``L(N, D) = E + A N^-alpha + B D^-beta`` (Hoffmann et al. 2022, arXiv 2203.15556) is fitted
to the logarithms of the final losses with a Huber loss, as Besiroglu et al. (2024, arXiv
2404.10102) do. A few runs cannot determine five parameters, so each has a weak prior from the
published laws. The interval is a parametric bootstrap: each replicate is fitted to newly drawn
losses and prior means. It also covers the scatter of one run, and the error of the law itself
beyond the largest run. That error is measured by leaving out the largest sizes and predicting them.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt

Array = NDArray[np.float64]

FEWEST_RUNS = 4
FEWEST_SPAN = 4.0
"""Least ratio of the largest run's compute to the smallest's."""
REPLICATES = 200
HUBER_K = 1.345
"""Standard deviations at which the loss becomes linear: 95 % efficient for normal scatter."""
PRIOR_SHARES = np.log([0.6, 0.2, 0.2])
"""Prior means of the floor and of both terms at the runs' mean size, as shares of the lowest loss.
Chinchilla's floor is 1.69 or 1.82, with losses from 2 to 3.2."""
PRIOR_EXPONENT = math.log(0.34)
"""Prior mean of both exponents. Published alpha and beta: 0.34 and 0.28 (Hoffmann et al.), 0.35 and
0.37 (Besiroglu et al.), 0.35 (Muennighoff et al. 2023, arXiv 2305.16264)."""
PRIOR_SD = np.array([0.4, 1.0, 1.0, 0.35, 0.35])
PRIOR_SCATTER, PRIOR_RUNS = 0.003, 3.0
"""Prior relative sd from one run to the next, and its weight in runs."""
LEAST_DRIFT = 0.002
"""Least relative error per doubling of compute. On the published grids of Step Law, Hoffmann et al.
and Gemstones the law errs by 0.2 to 1.5 % per doubling."""
_CUTS = 3


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


class ScalingFit(Frozen):
    """A fitted law, its replicates, and its errors."""

    law: ScalingLaw
    replicates: tuple[ScalingLaw, ...]
    scatter: NonNegative
    """Relative sd of one run about the law."""
    drift_per_doubling: NonNegative
    """Relative error per doubling of compute beyond the largest run."""
    runs: PositiveInt
    largest_compute: Positive

    def predict(self, params: ArrayLike, tokens: ArrayLike) -> tuple[Array, Array, Array]:
        """Return low, middle and high loss of a finished run: its 95 % interval and median."""
        low, middle, high = np.percentile(self.draws(params, tokens), [2.5, 50.0, 97.5], axis=0)
        return low, middle, high

    def draws(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Return the loss of a run of this size by each replicate, ``(R, …)``, each with its own
        scatter and error of the law."""
        mean = np.array([law.at(params, tokens) for law in self.replicates])
        rng = np.random.default_rng(1)
        shape = (len(mean), *([1] * (mean.ndim - 1)))
        luck = self.scatter * rng.standard_normal(shape)
        # Few sizes determine the law's error, so normal tails would be too narrow.
        drift = self.drift_per_doubling * rng.standard_t(4, shape)
        loss: Array = mean * np.exp(luck + drift * self.doublings(params, tokens))
        return loss

    def doublings(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Return the doublings of compute beyond the largest run; 0 for smaller runs."""
        compute = 6 * np.asarray(params, dtype=np.float64) * np.asarray(tokens, dtype=np.float64)
        beyond: Array = np.maximum(np.log2(compute / self.largest_compute), 0.0)
        return beyond

    @property
    def exponents(self) -> Array:
        """95 % intervals of alpha and beta over the replicates, ``[[low, high], [low, high]]``."""
        both = np.array([[law.alpha, law.beta] for law in self.replicates])
        interval: Array = np.percentile(both, [2.5, 97.5], axis=0).T
        return interval


def fit_scaling_law(
    runs: Sequence[FinishedRun], *, seed: int, replicates: int = REPLICATES
) -> ScalingFit:
    """Fit the law of finished runs.

    :raises HandoffError: if there are too few runs, or all are of about the same size.
    """
    sizes = {(run.params, run.tokens) for run in runs}
    if len(sizes) < FEWEST_RUNS:
        raise HandoffError(
            f"a scaling law needs finished runs of {FEWEST_RUNS} sizes or lengths, and there are "
            f"{len(sizes)}; train more rungs with: autoresearch ladder --rungs 5"
        )
    largest = max(run.compute for run in runs)
    span = largest / min(run.compute for run in runs)
    if span < FEWEST_SPAN:
        raise HandoffError(
            f"the finished runs span a factor of {span:.3g} in compute, and a scaling law needs "
            f"{FEWEST_SPAN:.0f}; train larger rungs with: autoresearch ladder --hours"
        )
    fit = _Fit(runs)
    return ScalingFit(
        law=fit.law(fit.theta),
        replicates=fit.resampled(replicates, np.random.default_rng(seed)),
        scatter=fit.spread,
        drift_per_doubling=_drift_per_doubling(runs),
        runs=len(runs),
        largest_compute=largest,
    )


class _Fit:
    """The best law of some runs, and their scatter about it.

    ``theta`` holds ``ln E``, both terms' logarithms at the runs' mean size, ``ln alpha`` and ``ln
    beta``.
    """

    def __init__(self, runs: Sequence[FinishedRun]) -> None:
        n_M, d_M = np.log([run.params for run in runs]), np.log([run.tokens for run in runs])
        self._centre = float(n_M.mean()), float(d_M.mean())
        self._n_M, self._d_M = n_M - self._centre[0], d_M - self._centre[1]
        self._y_M: Array = np.log([run.loss for run in runs])
        lowest = float(self._y_M.min())
        self._prior = np.array([*(lowest + PRIOR_SHARES), PRIOR_EXPONENT, PRIOR_EXPONENT])
        self.theta: Array = self._prior
        self.scatter = self.spread = PRIOR_SCATTER
        """Relative sd of one run about the law: ``scatter`` with outliers clipped, ``spread`` in
        full."""
        for _ in range(3):
            self.theta, jacobian = self._minimise(
                self.theta, self._y_M, self._prior, loss="huber", f_scale=HUBER_K
            )
            data = jacobian[: len(runs)]
            hat = np.linalg.solve(jacobian.T @ jacobian, data.T @ data)
            self.freedom = PRIOR_RUNS + max(len(runs) - float(np.trace(hat)), 0.0)
            rest_M = self._terms(self.theta)[0] - self._y_M
            held_M = np.clip(rest_M, -HUBER_K * self.scatter, HUBER_K * self.scatter)
            prior = PRIOR_RUNS * PRIOR_SCATTER**2
            self.spread = math.sqrt((prior + float(rest_M @ rest_M)) / self.freedom)
            # A normal variable clipped there has 0.71 of its variance (Huber's proposal 2).
            self.scatter = math.sqrt((prior + float(held_M @ held_M) / 0.71) / self.freedom)

    def _terms(self, theta: Array) -> tuple[Array, Array, Array]:
        """Return the log loss, and the logarithms of both terms."""
        a_M = theta[1] - math.exp(theta[3]) * self._n_M
        b_M = theta[2] - math.exp(theta[4]) * self._d_M
        return np.logaddexp(np.logaddexp(a_M, b_M), theta[0]), a_M, b_M

    def _minimise(self, start: Array, y_M: Array, prior: Array, **how: Any) -> tuple[Array, Array]:
        """Return the best law, and the derivatives of its residuals."""
        from scipy.optimize import least_squares  # noqa: PLC0415 (slow to load)

        def residuals(theta: Array) -> Array:
            rest_M = (self._terms(theta)[0] - y_M) / self.scatter
            return np.concatenate([rest_M, (theta - prior) / PRIOR_SD])

        def jacobian(theta: Array) -> Array:
            alpha, beta = np.exp(theta[3:])
            fitted_M, a_M, b_M = self._terms(theta)
            shares_3M = np.exp(np.array([np.full_like(a_M, theta[0]), a_M, b_M]) - fitted_M)
            by_exponents = [-alpha * self._n_M * shares_3M[1], -beta * self._d_M * shares_3M[2]]
            rows = np.vstack([shares_3M, by_exponents]).T / self.scatter
            return np.vstack([rows, np.diag(1 / PRIOR_SD)])

        found = least_squares(residuals, start, jacobian, max_nfev=60, **how)
        return found.x, found.jac

    def resampled(self, count: int, rng: np.random.Generator) -> tuple[ScalingLaw, ...]:
        """Return laws fitted to newly drawn losses."""
        laws = []
        for _ in range(count):
            scale = self.scatter * math.sqrt(self.freedom / rng.chisquare(self.freedom))
            y_M = self._terms(self.theta)[0] + scale * rng.standard_normal(len(self._y_M))
            prior = rng.normal(self._prior, PRIOR_SD)
            # Drawn losses have no outliers.
            laws.append(self.law(self._minimise(self.theta, y_M, prior, method="lm")[0]))
        return tuple(laws)

    def law(self, theta: Array) -> ScalingLaw:
        alpha, beta = np.exp(theta[3:])
        a, b = theta[1] + alpha * self._centre[0], theta[2] + beta * self._centre[1]
        floor, a, b = np.exp([theta[0], a, b])
        return ScalingLaw(floor=floor, a=a, alpha=alpha, b=b, beta=beta)


def _drift_per_doubling(runs: Sequence[FinishedRun]) -> float:
    """Return the law's relative error per doubling of compute: the smaller runs' law on the larger
    ones, beyond the scatter of a run."""
    computes = sorted({run.compute for run in runs})
    excess = [0.0]
    for cut in computes[FEWEST_RUNS - 1 : -1][-_CUTS:]:
        seen = [run for run in runs if run.compute <= cut]
        if len({(run.params, run.tokens) for run in seen}) < FEWEST_RUNS:
            continue
        fit = _Fit(seen)
        law = fit.law(fit.theta)
        for run in runs:
            if run.compute > cut:
                error = math.log(float(law.at(run.params, run.tokens)) / run.loss)
                doublings = max(math.log2(run.compute / cut), 1.0)
                excess.append((error**2 - fit.scatter**2) / doublings**2)
    return math.sqrt(max(float(np.mean(excess)), LEAST_DRIFT**2))
