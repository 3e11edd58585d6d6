"""Predict the loss of a finished run from its parameters and tokens, with an interval.

The law ``L(N, D) = E + A N^-alpha + B D^-beta`` (Hoffmann et al. 2022, arXiv 2203.15556) is fitted
to runs that were annealed to their end. The interval of a prediction covers three uncertainties:

- The parameters of the law. Each replicate is fitted to the fitted losses plus newly drawn scatter.
  The size of the scatter is drawn from its own uncertainty, and the prior means are drawn too.
- The run. A prediction is for a single run, so it includes the scatter once more.
- The form. The law need not hold far beyond the runs. A backtest fits it to the smaller runs and
  predicts the larger ones. Its error beyond its own interval is ``drift_per_doubling``; the
  interval widens by that much with each doubling of compute past the largest run.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, NonNegative, NonNegativeInt, Positive, PositiveInt
from funnel.forecast import robust_fit
from funnel.forecast.robust_fit import Array, Problem

TAIL = 100 * (1 - 0.95) / 2
"""Percentile at which an interval begins; it covers 95 %."""


FEWEST_RUNS = 4
FEWEST_SPAN = 4.0
"""Least ratio of the largest run's compute to the smallest's."""
REPLICATES = 500
PRIOR_SCATTER = 0.003
"""Prior relative sd from one run to the next."""
PRIOR_SCATTER_RUNS = 3.0
"""Weight of the prior scatter, in runs."""
LEAST_SCATTER = 2e-4
LEAST_DRIFT = 0.002
"""Least relative drift per doubling of compute: a backtest of few rungs may find too little.

On the published grids of Step Law, Hoffmann et al. and Gemstones the law errs by 0.2 to 1.5 % per
doubling.
"""
_ROUNDS = 5
"""Number of alternations between fitting the law and estimating the scatter."""
_STARTS = 4
"""Number of starts that are continued after the first round."""
_FEWEST_KEPT = 4
"""Fewest sizes up to a cut of the backtest."""
_MOST_CUTS = 4


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
        ends = [TAIL, 50.0, 100 - TAIL]
        low, middle, high = np.percentile(self.draws(params, tokens), ends, axis=0)
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
        count = len(self.replicates)
        luck = np.random.default_rng(1).standard_normal(count)
        # Few backtests determine the drift, so normal tails would be too narrow.
        drift = np.random.default_rng(2).standard_t(max(3, self.backtests), count)
        loss: Array = mean * np.exp(
            luck.reshape(shape) * self.scatter
            + drift.reshape(shape) * self.drift_per_doubling * self.doublings(n, d)
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
        low, high = np.percentile([alpha, beta], [TAIL, 100 - TAIL], axis=1)
        return Exponents(
            alpha_low=float(low[0]),
            alpha_high=float(high[0]),
            beta_low=float(low[1]),
            beta_high=float(high[1]),
            correlation=float(np.corrcoef(np.log(alpha), np.log(beta))[0, 1]),
        )

    @cached_property
    def _columns(self) -> Array:
        laws = [(law.floor, law.a, law.alpha, law.b, law.beta) for law in self.replicates]
        return np.array(laws).T


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
    span = max(run.compute for run in runs) / min(run.compute for run in runs)
    if span < FEWEST_SPAN:
        raise HandoffError(
            f"the finished runs span a factor of {span:.3g} in compute, and a scaling law needs "
            f"{FEWEST_SPAN:.0f}; train larger rungs with: autoresearch ladder --hours"
        )
    generator = np.random.default_rng(seed)
    drift, backtests = _drift_per_doubling(runs, generator)
    fit = _Fit(runs)
    return ScalingFit(
        law=fit.law(fit.theta_5),
        replicates=tuple(map(fit.law, fit.resampled(replicates, generator))),
        scatter=max(fit.spread, fit.scatter),
        drift_per_doubling=drift,
        runs=len(runs),
        largest_compute=max(run.compute for run in runs),
        backtests=backtests,
    )


class _Fit:
    """The best law of some runs, and their scatter about it."""

    def __init__(self, runs: Sequence[FinishedRun]) -> None:
        log_n_M = np.log([run.params for run in runs])
        log_d_M = np.log([run.tokens for run in runs])
        self._centre = float(log_n_M.mean()), float(log_d_M.mean())
        self.n_M, self.d_M = log_n_M - self._centre[0], log_d_M - self._centre[1]
        self.y_M: Array = np.log([run.loss for run in runs])
        self._prior_5 = robust_fit.prior_mean(self.y_M)
        self.scatter = self.spread = 0.01
        """Relative sd of one run about the law: ``scatter`` with outliers clipped, ``spread`` in
        full."""
        self.freedom = 1.0
        best_S5 = robust_fit.starts(self.y_M)
        for _ in range(_ROUNDS):
            problem = self._problem(np.tile(self.y_M, (len(best_S5), 1)))
            best_S5, value_S = robust_fit.minimise(best_S5, problem)
            best_S5 = best_S5[np.argsort(value_S)][:_STARTS]
            fitted_RM, _ = robust_fit.log_loss(best_S5[:1], self.n_M, self.d_M)
            residual_M = self.y_M - fitted_RM[0]
            # Huber's proposal 2: residuals are clipped where the loss becomes linear.
            most = robust_fit.HUBER_K * self.scatter
            pulling_M = np.clip(residual_M, -most, most)
            free = len(self.y_M) - robust_fit.effective_parameters(best_S5[0], problem)
            self.freedom = PRIOR_SCATTER_RUNS + max(free, 0.0)
            prior = PRIOR_SCATTER_RUNS * PRIOR_SCATTER**2
            pulled = prior + float((pulling_M**2).sum()) / robust_fit.HUBER_SQUARE
            self.scatter = max(math.sqrt(pulled / self.freedom), LEAST_SCATTER)
            self.spread = math.sqrt((prior + float((residual_M**2).sum())) / self.freedom)
        self.theta_5: Array = best_S5[0]

    def _problem(self, y_RM: Array, prior_R5: Array | None = None) -> Problem:
        rows = len(y_RM)
        return Problem(
            self.n_M,
            self.d_M,
            y_RM,
            np.full(rows, self.scatter),
            np.tile(self._prior_5, (rows, 1)) if prior_R5 is None else prior_R5,
        )

    def resampled(self, count: int, generator: np.random.Generator) -> Array:
        """Return the parameters of laws fitted to resampled losses, ``(count, 5)``."""
        fitted_RM, _ = robust_fit.log_loss(self.theta_5[None], self.n_M, self.d_M)
        factor_R = np.sqrt(self.freedom / generator.chisquare(self.freedom, count))
        noise_RM = generator.standard_normal((count, len(self.y_M)))
        y_RM = fitted_RM + noise_RM * (factor_R * self.scatter)[:, None]
        prior_R5 = generator.normal(self._prior_5, robust_fit.PRIOR_SD, (count, 5))
        start_R5 = np.tile(self.theta_5, (count, 1))
        return robust_fit.minimise(start_R5, self._problem(y_RM, prior_R5))[0]

    def law(self, theta_5: Array) -> ScalingLaw:
        alpha, beta = math.exp(theta_5[3]), math.exp(theta_5[4])
        return ScalingLaw(
            floor=math.exp(theta_5[0]),
            a=math.exp(theta_5[1] + alpha * self._centre[0]),
            alpha=alpha,
            b=math.exp(theta_5[2] + beta * self._centre[1]),
            beta=beta,
        )


def _drift_per_doubling(
    runs: Sequence[FinishedRun], generator: np.random.Generator
) -> tuple[float, int]:
    """Return the drift per doubling of compute, and the number of sizes in the backtest.

    The drift is the error of the smaller runs' law on the larger runs, beyond its own interval.
    """
    ordered = sorted(runs, key=lambda run: run.compute)
    computes = sorted({run.compute for run in ordered})
    excess: list[float] = []
    cuts = computes[_FEWEST_KEPT - 1 : -1]
    for cut in cuts[:: -(-len(cuts) // _MOST_CUTS) or 1]:
        seen = [run for run in ordered if run.compute <= cut]
        unseen = [run for run in ordered if run.compute > cut]
        if len({(run.params, run.tokens) for run in seen}) >= _FEWEST_KEPT:
            excess.append(_excess(_Fit(seen), unseen, cut, generator))
    if not excess:
        return LEAST_DRIFT, 0
    return max(math.sqrt(float(np.mean(excess))), LEAST_DRIFT), len(computes) - _FEWEST_KEPT


def _excess(
    fit: _Fit, unseen: Sequence[FinishedRun], cut: float, generator: np.random.Generator
) -> float:
    """Return the mean square error on unseen runs, minus the fit's own variance.

    Each error is divided by its doublings of compute beyond the cut, at least one.
    """
    laws = [fit.law(theta) for theta in fit.resampled(60, generator)]
    found = []
    for run in unseen:
        at = np.log([float(law.at(run.params, run.tokens)) for law in laws])
        error = float(np.median(at)) - math.log(run.loss)
        known = float(at.var()) + fit.scatter**2
        found.append((error**2 - known) / max(math.log2(run.compute / cut), 1.0) ** 2)
    return max(float(np.mean(found)), 0.0)
