"""Runs taken apart into what the recipe scores, what the seed adds, and the rest.

A run of config c on seed s scores ``y_cs = mu_c + k(mu_c) (b_s + e_cs)``: the config's own mean,
what the seed does to every config (its batches and initial draws are shared), and the rest, with
``b_s ~ N(0, phi²)``, ``e_cs ~ N(0, sigma²)``. ``k`` lets noise grow with the score, as it does on
real proxies, where a good recipe trains calmly and a bad one does not: ``ln k² = slope (mu - m)``.
The distribution of ``mu`` has no given form (:mod:`trajectory.statistics.prior_shape`).

They are estimated in turns until nothing moves. Selection (a race goes on because a first run
looked lucky) is not mistaken for merit, for every run counts, the lone ones too (Rubin, Biometrika
63, 1976). The variances have prior degrees of freedom, on the cautious side, so that three
replicates cannot promise a noise of nothing; the slope has a prior at zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from trajectory.statistics.prior_shape import Floats, Shape

MAX_ROUNDS = 60
TOLERANCE = 3e-3
"""The fit ends where no variance moves by more than this fraction in a round."""
PRIOR_DOF = 4.0
"""Degrees of freedom that the prior gives the residual variance: the spread of a run within its
config, the seed's share included."""
SLOPE_SD = 2.2
"""Sd of the slope's prior, per bit per byte: cautious, as a slope followed too far calls the best
recipes calmer than they are. The demo's campaign has a slope of 7.3 without it and of 4.2 with it;
its raw variances within configs, seeds' effects and the baseline included, rise by 9.8. A prior of
5 made no clear difference in simulation (docs/evidence.md)."""
SLOPE_STEP, STEEPEST = 2.0, 12.0
IMPLAUSIBLE = 2.0
"""A law by which a middling run is so many times as noisy as runs were found to be has followed one
ruinous seed; then noise is held to be the same for all."""
FARTHEST = 3.0
"""``|ln k²|`` at most: a law of the noise is not followed beyond a factor of 4.5 in the sd."""
MOST_RATIO = 4.0
"""The largest ratio of one config's variance to the rest's: one ruinous seed does not make a
law."""
FEWEST_REPLICATED = 5
"""Configs, to tell a slope from."""

Indices = NDArray[np.intp]


class Measured(Protocol):
    """A config with the scores of its runs, by seed: ours or another tool's."""

    @property
    def scores(self) -> Mapping[int, float]: ...
    @property
    def n(self) -> int: ...
    @property
    def mean(self) -> float: ...


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
    """The estimates as they stand. All in bits per byte."""

    m: float
    sigma2: float
    phi2: float
    slope: float
    mu: Floats
    """[C]: posterior means."""
    effect: Floats
    """[S]: of the seeds, in units of k."""
    variance: Floats
    """[S]: of those."""
    shape: Shape | None = None
    dof: float = PRIOR_DOF
    """Degrees of freedom behind sigma²."""

    def k(self, mu: Floats) -> Floats:
        """How much noisier than at m one run is, as a factor of its sd."""
        k: Floats = np.exp(np.clip(self.slope * (mu - self.m), -FARTHEST, FARTHEST) / 2)
        return k

    def run_variance(self, mu: Floats) -> Floats:
        """The variance of one run without its seed's effect."""
        variance: Floats = self.sigma2 * self.k(mu) ** 2
        return variance


def take_apart(runs: Runs, sigma: float, *, seeds_known: bool) -> Fit:
    """The fit to these runs, with a law of the noise where it is plausible.

    :param sigma: pooled sd of one run within a config, seed effects included: where the fit starts
        with half of the variance in the seed, as two configs on one seed were found to correlate.
    :param seeds_known: False where the keys of the scores are no seeds: then phi is zero, and no
        run says anything about another's.
    """
    fit = _alternate(runs, sigma, seeds_known=seeds_known, steepest=STEEPEST)
    if fit.sigma2 + fit.phi2 > (IMPLAUSIBLE * sigma) ** 2:
        fit = _alternate(runs, sigma, seeds_known=seeds_known, steepest=0.0)
    return fit


def _alternate(runs: Runs, sigma: float, *, seeds_known: bool, steepest: float) -> Fit:
    n_C = np.bincount(runs.config).astype(float)
    n_S = np.bincount(runs.seed).astype(float)
    mean_C = np.bincount(runs.config, runs.score) / n_C
    phi2 = sigma**2 / 2 if seeds_known else 0.0  # and a phi of zero stays zero
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
        if len(n_S) > 1:  # what all seeds share is no effect of one
            fit.effect = fit.effect - fit.effect.mean()
        fit.variance = keep_S * fit.sigma2 / n_S
        seen_C = mean_C - k_C * np.bincount(runs.config, fit.effect[runs.seed]) / n_C
        fit.shape = Shape.fit(seen_C, n_C, fit.run_variance, fit.shape)
        fit.mu, _ = fit.shape.believed(seen_C, n_C)
        _weigh(fit, runs, n_C, k_C, keep_S, sigma)
        _slope(fit, runs, n_C, k_C, steepest)
        moved = np.abs(np.array([fit.sigma2, fit.phi2]) - before) <= TOLERANCE * before
        if np.all(moved) and np.abs(fit.mu - mu_before).max() <= TOLERANCE * np.sqrt(fit.sigma2):
            break
    return fit


def _weigh(fit: Fit, runs: Runs, n_C: Floats, k_C: Floats, keep_S: Floats, sigma: float) -> None:
    """The two variances, from what the configs' own means and the seeds leave over."""
    squares_C = _squares(fit, runs, n_C, k_C)
    dof = max(0.0, float((n_C - 1).sum() - (keep_S.sum() - keep_S.mean())))
    fit.sigma2 = (float(squares_C.sum()) + PRIOR_DOF * sigma**2) / (dof + PRIOR_DOF)
    fit.dof = dof + PRIOR_DOF
    if len(keep_S) > 1:
        fit.phi2 = float((fit.effect**2 + fit.variance).sum()) / (len(keep_S) - 1)


def _slope(fit: Fit, runs: Runs, n_C: Floats, k_C: Floats, steepest: float) -> None:
    """One step of Fisher scoring for variances within configs as gamma variables of the score."""
    squares_C = _squares(fit, runs, n_C, k_C)
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


def _squares(fit: Fit, runs: Runs, n_C: Floats, k_C: Floats) -> Floats:
    """``[C]``: about each config's mean, the seeds' effects taken out, in units of k."""
    rest_R = runs.score - k_C[runs.config] * fit.effect[runs.seed]
    own_C = np.bincount(runs.config, rest_R) / n_C
    squares_C: Floats = np.bincount(runs.config, (rest_R - own_C[runs.config]) ** 2) / k_C**2
    return squares_C
