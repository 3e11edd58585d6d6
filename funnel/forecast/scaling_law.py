"""Predict the loss of a finished run from its parameters and tokens, with an interval.

The law ``L(N, D) = E + A N^-alpha + B D^-beta`` (Hoffmann et al. 2022, arXiv 2203.15556) is fitted
to the logarithms of the final losses with a Huber loss, as Besiroglu et al. (2024, arXiv
2404.10102) do. A few runs cannot determine five parameters, so each has a weak prior from the
published laws: a floor of 0.6 of the lowest loss (1.69 or 1.82 with losses from 2 to 3.2), terms of
0.2 of it, and exponents of 0.34 (0.28 to 0.37 are published). The interval is a parametric
bootstrap: each replicate is fitted to newly drawn losses and prior means. It also covers the
scatter of one run, and the error of the law itself beyond the largest run. That error is measured
by leaving out the largest sizes and predicting them.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, NonNegative, Positive

Array = NDArray[np.float64]

FEWEST_RUNS, FEWEST_SPAN = 4, 4.0
HUBER_K = 1.345  # sds at which the loss becomes linear: 95 % efficient for normal scatter
PRIOR_SHARES, PRIOR_EXPONENT = np.log([0.6, 0.2, 0.2]), math.log(0.34)
PRIOR_SD = np.array([0.4, 1.0, 1.0, 0.35, 0.35])
PRIOR_SCATTER, PRIOR_RUNS = 0.003, 3.0  # relative sd from run to run, and its weight in runs
LEAST_DRIFT = 0.002  # published grids: 0.2 to 1.5 % per doubling (Step Law, Hoffmann, Gemstones)
REPLICATES, MOST_CUTS = 200, 3


class FinishedRun(Frozen):
    """A run that was annealed to its end: parameters without embeddings, tokens, final loss. Its
    compute is ``6 N D`` FLOPs."""

    params: Positive
    tokens: Positive
    loss: Positive

    @property
    def compute(self) -> float:
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
        return np.asarray(self.floor + self.a * n**-self.alpha + self.b * d**-self.beta)


class ScalingFit:
    """The best law of some runs, and its errors.

    ``scatter`` is the relative sd of one run about the law. ``theta`` holds ``ln E``, both terms'
    logarithms at the runs' mean size, ``ln alpha`` and ``ln beta``.
    """

    def __init__(self, runs: Sequence[FinishedRun], seed: int = 0) -> None:
        self.runs, self._seed = tuple(runs), seed
        n_M, d_M = np.log([run.params for run in runs]), np.log([run.tokens for run in runs])
        self._centre = np.array([0.0, n_M.mean(), d_M.mean()])
        self._n_M, self._d_M = n_M - self._centre[1], d_M - self._centre[2]
        y_M = np.log([run.loss for run in runs])
        self._prior = np.array([*(y_M.min() + PRIOR_SHARES), PRIOR_EXPONENT, PRIOR_EXPONENT])
        self.theta: Array = self._prior
        self.scatter = PRIOR_SCATTER
        for _ in range(3):
            found = self._fitted(y_M, self._prior, loss="huber", f_scale=HUBER_K)
            data = found.jac[: len(runs)]
            hat = np.linalg.solve(found.jac.T @ found.jac, data.T @ data)
            self.theta = found.x
            self._freedom = PRIOR_RUNS + max(len(runs) - float(np.trace(hat)), 0.0)
            rest_M = self._terms(self.theta)[0] - y_M
            held_M = np.clip(rest_M, -HUBER_K * self.scatter, HUBER_K * self.scatter)
            # A normal variable clipped there has 0.71 of its variance (Huber's proposal 2).
            squares = PRIOR_RUNS * PRIOR_SCATTER**2 + float(held_M @ held_M) / 0.71
            self.scatter = math.sqrt(squares / self._freedom)
        self.law = self._law(self.theta)

    def predict(self, params: ArrayLike, tokens: ArrayLike) -> tuple[Array, Array, Array]:
        """Return low, middle and high loss of a finished run: its 95 % interval and median."""
        low, middle, high = np.percentile(self.draws(params, tokens), [2.5, 50.0, 97.5], axis=0)
        return low, middle, high

    def draws(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Return the loss of a run of this size by each replicate, ``(R, …)``, each with its own
        scatter and error of the law."""
        mean = np.array([law.at(params, tokens) for law in self.replicates])
        rng = np.random.default_rng(1)
        luck, far = rng.standard_normal(len(mean)), rng.standard_t(4, len(mean))  # few sizes: tails
        off = np.multiply.outer(self.drift_per_doubling * far, self.doublings(params, tokens))
        return np.asarray((mean.T * np.exp(self.scatter * luck)).T * np.exp(off))

    def doublings(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Return the doublings of compute beyond the largest run; 0 for smaller runs."""
        compute = 6 * np.asarray(params, dtype=np.float64) * np.asarray(tokens, dtype=np.float64)
        return np.maximum(np.log2(compute / max(run.compute for run in self.runs)), 0.0)

    @cached_property
    def replicates(self) -> list[ScalingLaw]:
        """Laws fitted to newly drawn losses."""
        rng, laws = np.random.default_rng(self._seed), []
        for _ in range(REPLICATES):
            scale = self.scatter * math.sqrt(self._freedom / rng.chisquare(self._freedom))
            y_M = self._terms(self.theta)[0] + scale * rng.standard_normal(len(self.runs))
            prior = rng.normal(self._prior, PRIOR_SD)
            laws.append(self._law(self._fitted(y_M, prior, method="lm").x))
        return laws

    @cached_property
    def drift_per_doubling(self) -> float:
        """The law's relative error per doubling of compute beyond the largest run: that of the
        smaller runs' law on the larger ones, less the scatter of a run."""
        excess = [0.0]
        for cut in sorted({run.compute for run in self.runs})[:-1][-MOST_CUTS:]:
            seen = [run for run in self.runs if run.compute <= cut]
            if len({run.compute for run in seen}) < FEWEST_RUNS:
                continue
            fit = ScalingFit(seen)
            for run in (run for run in self.runs if run.compute > cut):
                error = math.log(float(fit.law.at(run.params, run.tokens)) / run.loss)
                doublings = max(math.log2(run.compute / cut), 1.0)
                excess.append((error**2 - fit.scatter**2) / doublings**2)
        return math.sqrt(max(float(np.mean(excess)), LEAST_DRIFT**2))

    def _terms(self, theta: Array) -> tuple[Array, Array, Array]:
        """Return the log loss, and the logarithms of both terms."""
        a_M = theta[1] - math.exp(theta[3]) * self._n_M
        b_M = theta[2] - math.exp(theta[4]) * self._d_M
        return np.logaddexp(np.logaddexp(a_M, b_M), theta[0]), a_M, b_M

    def _fitted(self, y_M: Array, prior: Array, **how: Any) -> Any:
        from scipy.optimize import least_squares  # noqa: PLC0415 (slow to load)

        def residuals(theta: Array) -> Array:
            rest_M = (self._terms(theta)[0] - y_M) / self.scatter
            return np.concatenate([rest_M, (theta - prior) / PRIOR_SD])

        def jacobian(theta: Array) -> Array:
            fitted_M, a_M, b_M = self._terms(theta)
            floor, a, b = np.exp([theta[0] - fitted_M, a_M - fitted_M, b_M - fitted_M])
            alpha, beta = np.exp(theta[3:])
            rows = [floor, a, b, -alpha * self._n_M * a, -beta * self._d_M * b]
            return np.vstack([np.array(rows).T / self.scatter, np.diag(1 / PRIOR_SD)])

        return least_squares(residuals, self.theta, jacobian, max_nfev=60, **how)

    def _law(self, theta: Array) -> ScalingLaw:
        alpha, beta = np.exp(theta[3:])
        floor, a, b = np.exp(theta[:3] + np.array([0, alpha, beta]) * self._centre)
        return ScalingLaw(floor=floor, a=a, alpha=alpha, b=b, beta=beta)


def fit_scaling_law(runs: Sequence[FinishedRun], *, seed: int) -> ScalingFit:
    """Fit the law of finished runs.

    :raises HandoffError: if there are too few runs, or all are of about the same size.
    """
    sizes = {(run.params, run.tokens) for run in runs}
    if len(sizes) < FEWEST_RUNS:
        raise HandoffError(
            f"a scaling law needs finished runs of {FEWEST_RUNS} sizes or lengths, and there are "
            f"{len(sizes)}; train more rungs with: autoresearch ladder --rungs 5"
        )
    span = max(run.compute for run in runs) / min(run.compute for run in runs)
    if span < FEWEST_SPAN:
        raise HandoffError(
            f"the finished runs span a factor of {span:.3g} in compute, and a scaling law needs "
            f"{FEWEST_SPAN:.0f}; train larger rungs with: autoresearch ladder --hours"
        )
    return ScalingFit(runs, seed)
