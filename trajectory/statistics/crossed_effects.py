"""Decompose the scores of runs into effects of the config and of the seed, and a residual.

A run of config c on seed s scores ``y_cs = mu_c + k(mu_c) (b_s + e_cs)``. ``mu_c`` is the config's
own mean. ``b_s ~ N(0, phi²)`` is the effect of the seed on every config, whose batches and initial
draws are shared. ``e_cs ~ N(0, sigma²)`` is the residual. ``k`` lets noise grow with the score, as
on real proxies, where a good recipe trains smoothly and a bad one does not. The law is ``ln k² =
slope (mu - m)``.

The parameters are estimated alternately until they converge. Races continue when a first run looks
lucky. This selection does not bias the estimates, because every run counts, also that of a config
measured once (Rubin, Biometrika 63, 1976). The variances have cautious prior degrees of freedom, so
that three replicates cannot suggest zero noise. The slope has a prior at zero.

The distribution of ``mu`` is nonparametric (:class:`MixtureShape`), because recipes are not
normally distributed. They form clusters near each incumbent, of children that change little or
nothing. There is a long tail of changes that made it worse, and a downward drift over time.
Shrinkage toward one mean would leave the luck of the best config in the last cluster uncorrected.
So the shape is a mixture of narrow normals on a grid, with weights by expectation maximization
(nonparametric maximum likelihood, Kiefer and Wolfowitz 1956; Efron, "Empirical Bayes: Concepts and
Methods", 2021). A grid of point masses would make intervals too narrow, so the normals are as wide
as the grid's spacing.

Shapes: C configs, S seeds, R runs, K places of the grid.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SPACING = 0.25
"""Spacing of the grid in standard deviations of one run: it resolves what four runs can
distinguish."""
MOST_PLACES = 200
FINE = 401
"""Number of places at which the spacing is evaluated."""
FIRST_ROUNDS, MORE_ROUNDS = 60, 10
"""Rounds of expectation maximization, for a new shape and for an update."""


@dataclass(frozen=True, slots=True)
class MixtureShape:
    """The mixture: means ``place`` ``[K]`` and standard deviations ``width`` ``[K]`` in bits per
    byte, and ``weight`` ``[K]``."""

    place: Floats
    width: Floats
    weight: Floats
    run_variance: Floats
    """[K]: variance of one run of a recipe at each place."""

    @classmethod
    def fit(
        cls, seen_C: Floats, n_C: Floats, run_variance: Callable[[Floats], Floats], old: Self | None
    ) -> Self:
        """Fit the shape to these means of ``n_C`` runs by maximum likelihood.

        :param run_variance: returns the variance of one run by the score.
        :param old: shape to start from.
        """
        place = _grid(float(seen_C.min()), float(seen_C.max()), run_variance)
        width = np.gradient(place) if len(place) > 1 else _spacing(place, run_variance)
        weight = np.full(len(place), 1 / len(place))
        if old is not None and min(len(place), len(old.place)) > 1:
            density = np.interp(place, old.place, old.weight / old.width)
            weight = density * width + 1e-4 / len(place)
            weight /= weight.sum()
        shape = cls(place, width, weight, run_variance(place))
        likelihood_CK = shape._likelihoods(seen_C, n_C)
        for _ in range(FIRST_ROUNDS if old is None else MORE_ROUNDS):
            share_CK = likelihood_CK * weight
            weight = (share_CK / share_CK.sum(axis=1, keepdims=True)).mean(axis=0)
        return cls(place, width, weight, shape.run_variance)

    def believed(self, seen_C: Floats, n_C: Floats) -> tuple[Floats, Floats]:
        """Return posterior means and variances of the true scores behind these means."""
        share_CK = self._likelihoods(seen_C, n_C) * self.weight
        share_CK /= share_CK.sum(axis=1, keepdims=True)
        noise_CK = self.run_variance / n_C[:, None]
        shrinkage_CK = noise_CK / (noise_CK + self.width**2)
        mean_CK = seen_C[:, None] - shrinkage_CK * (seen_C[:, None] - self.place)
        mean_C = (share_CK * mean_CK).sum(axis=1)
        spread_CK = self.width**2 * shrinkage_CK + (mean_CK - mean_C[:, None]) ** 2
        return mean_C, (share_CK * spread_CK).sum(axis=1)

    def _likelihoods(self, seen_C: Floats, n_C: Floats) -> Floats:
        """Return likelihoods ``[C, K]``, each row up to a factor."""
        variance_CK = self.run_variance / n_C[:, None] + self.width**2
        log_CK = -((seen_C[:, None] - self.place) ** 2) / (2 * variance_CK)
        log_CK -= np.log(variance_CK) / 2
        likelihood_CK: Floats = np.exp(log_CK - log_CK.max(axis=1, keepdims=True))
        return likelihood_CK


def _grid(low: float, high: float, run_variance: Callable[[Floats], Floats]) -> Floats:
    """Return a grid from low to high, with steps proportional to the local noise."""
    fine = np.linspace(low, high, FINE)
    steps_per_bpb = 1 / np.maximum(_spacing(fine, run_variance), (high - low) / MOST_PLACES + 1e-12)
    reached = np.concatenate([[0.0], np.cumsum(steps_per_bpb[:-1] * np.diff(fine))])
    return np.interp(np.linspace(0, reached[-1], math.ceil(reached[-1]) + 1), reached, fine)


def _spacing(place: Floats, run_variance: Callable[[Floats], Floats]) -> Floats:
    return SPACING * np.sqrt(run_variance(place))


MAX_ROUNDS = 60
TOLERANCE = 3e-3
"""Relative change of the variances per round below which the fit ends."""
PRIOR_DOF = 4.0
"""Prior degrees of freedom of the residual variance, and the fewest of the seeds' variance. The
prior value of both is the variance of a run within its config, including the seed's share."""
SLOPE_SD = 2.2
"""Standard deviation of the slope's prior, per bit per byte.

It is cautious, because too steep a slope makes the best recipes look less noisy than they are. The
demo's campaign has a slope of 7.2 without it and of 4.1 with it. Its raw variances within configs,
with seed effects and baseline, rise by 9.8. A prior of 5 made no clear difference in simulation
(docs/evidence.md).
"""
SLOPE_STEP, STEEPEST = 2.0, 12.0
IMPLAUSIBLE = 2.0
"""Largest plausible ratio of an average run's fitted noise to the measured noise. A fit beyond it
followed one very bad seed; noise is then assumed equal for all configs."""
FARTHEST = 3.0
"""Largest ``|ln k²|``: the standard deviation of the noise changes by at most a factor of 4.5."""
MOST_RATIO = 4.0
"""Largest ratio of one config's variance to the rest's, so that one very bad seed does not
determine the slope."""
FEWEST_REPLICATED = 5
"""Fewest replicated configs for estimating a slope."""

Indices = NDArray[np.intp]


class Measured:
    """A config with its runs' scores by seed, this project's or another tool's."""

    __slots__ = ()
    iter: int
    scores: dict[int, float]

    @property
    def n(self) -> int:
        """Number of seeds or runs measured."""
        return len(self.scores)

    @property
    def mean(self) -> float:
        """Mean score.

        :raises StatisticsError: if nothing was measured.
        """
        return fmean(self.scores.values())


@dataclass(frozen=True, slots=True)
class Runs:
    """R runs, of C configs, on S seeds."""

    score: Floats
    """[R]"""
    config: Indices
    """[R]: each run's config, in 0 … C-1."""
    seed: Indices
    """[R]: its seed's index, in 0 … S-1."""
    seeds: list[int]
    """[S]: the seeds themselves."""

    @classmethod
    def of(cls, entries: Sequence[Measured]) -> Self:
        seeds = sorted({seed for entry in entries for seed in entry.scores})
        place = {seed: index for index, seed in enumerate(seeds)}
        return cls(
            score=np.array([score for entry in entries for score in entry.scores.values()]),
            config=np.repeat(np.arange(len(entries)), [entry.n for entry in entries]),
            seed=np.array([place[seed] for entry in entries for seed in entry.scores]),
            seeds=seeds,
        )


@dataclass(slots=True)
class Fit:
    """Current estimates of the model, in bits per byte."""

    m: float
    sigma2: float
    phi2: float
    slope: float
    mu: Floats
    """[C]: posterior means."""
    effect: Floats
    """[S]: effects of the seeds, in units of k."""
    variance: Floats
    """[S]: variances of those effects."""
    shape: MixtureShape | None = None
    dof: float = PRIOR_DOF
    """Degrees of freedom behind sigma²."""
    seed_dof: float = PRIOR_DOF
    """Degrees of freedom behind phi²; where seeds are few, the noise of all runs adds some."""

    def k(self, mu: Floats) -> Floats:
        """Return the noise at ``mu`` relative to that at m, as a factor of a run's standard
        deviation."""
        k: Floats = np.exp(np.clip(self.slope * (mu - self.m), -FARTHEST, FARTHEST) / 2)
        return k

    def run_variance(self, mu: Floats) -> Floats:
        """Return the variance of one run without its seed's effect."""
        variance: Floats = self.sigma2 * self.k(mu) ** 2
        return variance


def take_apart(runs: Runs, sigma: float, *, seeds_known: bool) -> Fit:
    """Fit these runs, with noise that depends on the score if that is plausible.

    :param sigma: pooled standard deviation of one run within a config, with seed effects. The fit
        starts with half of the variance in the seed, the measured correlation of two configs on one
        seed.
    :param seeds_known: False if the keys of the scores are not seeds. Then phi is zero, and runs of
        different configs are independent.
    """
    fit = _alternate(runs, sigma, seeds_known=seeds_known, steepest=STEEPEST)
    if fit.sigma2 + fit.phi2 > (IMPLAUSIBLE * sigma) ** 2:
        fit = _alternate(runs, sigma, seeds_known=seeds_known, steepest=0.0)
    return fit


def _alternate(runs: Runs, sigma: float, *, seeds_known: bool, steepest: float) -> Fit:
    n_C = np.bincount(runs.config).astype(float)
    n_S = np.bincount(runs.seed).astype(float)
    mean_C = np.bincount(runs.config, runs.score) / n_C
    phi2 = sigma**2 / 2 if seeds_known else 0.0  # a phi of zero stays zero
    nothing_S = np.zeros(len(n_S))
    start = float(np.median(mean_C))
    fit = Fit(start, sigma**2 - phi2, phi2, 0.0, mean_C, nothing_S, nothing_S)
    for _ in range(MAX_ROUNDS):
        before = np.array([fit.sigma2, fit.phi2])
        mu_before = fit.mu
        keep_S = fit.phi2 / (fit.phi2 + fit.sigma2 / n_S)
        k_C = fit.k(fit.mu)
        deviate_R = (runs.score - fit.mu[runs.config]) / k_C[runs.config]
        fit.effect = keep_S * np.bincount(runs.seed, deviate_R) / n_S
        if len(n_S) > 1:  # effects are relative to the mean seed
            fit.effect = fit.effect - fit.effect.mean()
        fit.variance = keep_S * fit.sigma2 / n_S
        seen_C = mean_C - k_C * np.bincount(runs.config, fit.effect[runs.seed]) / n_C
        fit.shape = MixtureShape.fit(seen_C, n_C, fit.run_variance, fit.shape)
        fit.mu, _ = fit.shape.believed(seen_C, n_C)
        # Sums of squares around each config's mean, without seed effects, in units of k.
        rest_R = runs.score - k_C[runs.config] * fit.effect[runs.seed]
        own_C = np.bincount(runs.config, rest_R) / n_C
        squares_C: Floats = np.bincount(runs.config, (rest_R - own_C[runs.config]) ** 2) / k_C**2
        dof = max(0.0, float((n_C - 1).sum() - (keep_S.sum() - keep_S.mean())))
        fit.sigma2 = (float(squares_C.sum()) + PRIOR_DOF * sigma**2) / (dof + PRIOR_DOF)
        fit.dof = dof + PRIOR_DOF
        if seeds_known:
            free = len(keep_S) - 1
            fit.seed_dof = max(PRIOR_DOF, free)
            seed_squares = float((fit.effect**2 + fit.variance).sum()) if free else 0.0
            fit.phi2 = (seed_squares + (fit.seed_dof - free) * sigma**2) / fit.seed_dof
        _slope(fit, squares_C, n_C, steepest)
        moved = np.abs(np.array([fit.sigma2, fit.phi2]) - before) <= TOLERANCE * before
        if np.all(moved) and np.abs(fit.mu - mu_before).max() <= TOLERANCE * np.sqrt(fit.sigma2):
            break
    return fit


def _slope(fit: Fit, squares_C: Floats, n_C: Floats, steepest: float) -> None:
    """Update the slope by one step of Fisher scoring.

    The variances within configs are modeled as gamma variables whose mean depends on the score.
    """
    total = float(squares_C.sum())
    if (n_C > 1).sum() < FEWEST_REPLICATED or total == 0:
        return
    weight_C = (n_C - 1) / 2
    x_C = fit.mu - np.average(fit.mu, weights=weight_C)
    ratio_C = squares_C / np.maximum(n_C - 1, 1) / (total / (n_C - 1).sum())
    excess_C = np.minimum(ratio_C, MOST_RATIO) - 1
    ridge = 1 / SLOPE_SD**2
    score = float((weight_C * x_C * excess_C).sum()) - ridge * fit.slope
    step = score / (float((weight_C * x_C**2).sum()) + ridge)
    fit.slope = float(
        np.clip(fit.slope + np.clip(step, -SLOPE_STEP, SLOPE_STEP), -steepest, steepest)
    )
