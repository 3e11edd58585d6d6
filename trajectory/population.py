"""What recipes of a campaign score in general: the population a single one is judged against.

A run of config c on seed s scores ``y_cs = mu_c + b_s + e_cs``: the config's own mean, what the
seed does to every config (its batches and initial draws are shared), and the rest. All are normal:
``mu_c ~ N(m, tau²)``, ``b_s ~ N(0, phi²)``, ``e_cs ~ N(0, sigma²)``. They are estimated together by
maximum likelihood: mean-field variational EM for crossed random effects (Menictas, Di Credico and
Wand, JCGS 32, 2023), with shrinkage as in Efron and Morris (JASA 70, 1975). Likelihood, unlike
plain moments, is not misled by races, which run a config again just because its first run looked
lucky (Rubin, Biometrika 63, 1976). Where nothing but the baseline was replicated, a seed's effect
cannot be told from the rest; then more is shrunk than need be, which errs on the cautious side.

Only sensible recipes belong to the population. A few ruinous learning rates would blow tau up until
nothing is shrunk and luck is crowned. So the members are found first: from the shortest half of the
means outwards, to a fixed point, all that lie under CUTOFF_SD sd above it (and all below it: there
are the finds).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

CUTOFF_SD = 3.0
MIN_CONFIGS = 8
"""Fewer configs are no population."""
MAX_ROUNDS = 300
TOLERANCE = 1e-4
"""The fit ends where no variance moves by more than this fraction in a round."""
_SHORTEST_HALF_SD = 1.349
"""Width in sd of the middle half of a normal distribution."""

Floats = NDArray[np.float64]
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
class Posterior:
    """What a config is believed to score, on average over all seeds there could be."""

    mean: float
    sd: float
    dof: int
    """Degrees of freedom behind ``sd``, for Student's t."""


@dataclass(frozen=True, slots=True)
class SeedEffect:
    """What a seed adds to every config's score, and how surely that is known."""

    mean: float
    variance: float


@dataclass(frozen=True, slots=True)
class Population:
    """The fitted model. All in bits per byte."""

    mean: float
    """m"""
    sd: float
    """tau: of the configs' true means"""
    sigma: float
    """Of one run, the seed's effect taken out."""
    seed_sd: float
    """phi"""
    seeds: dict[int, SeedEffect]
    configs: int
    """Members it was fitted to."""
    dof: int
    """Runs beyond the first of each member: the degrees of freedom behind sigma."""
    cutoff: float
    """The highest mean of a member."""

    @classmethod
    def fit(
        cls, entries: Sequence[Measured], sigma: float, *, seeds_known: bool = True
    ) -> Self | None:
        """The population of these measured configs; None where they are too few to tell.

        :param sigma: pooled sd of one run within a config, seed effects included: where the fit
            starts.
        :param seeds_known: False where the keys of the scores are no seeds: then phi is zero, and
            no run says anything about another's.
        """
        if len(entries) < MIN_CONFIGS or sigma == 0:
            return None
        means = np.array([entry.mean for entry in entries])
        cutoff = _cutoff(np.sort(means))
        members = [entry for entry, mean in zip(entries, means, strict=True) if mean <= cutoff]
        runs = _Runs.of(members)
        fitted = _maximise(runs, sigma, seeds_known=seeds_known)
        effects = zip(fitted.effect.tolist(), fitted.variance.tolist(), strict=True)
        return cls(
            mean=fitted.m,
            sd=math.sqrt(fitted.tau2),
            sigma=math.sqrt(fitted.sigma2),
            seed_sd=math.sqrt(fitted.phi2),
            seeds=dict(zip(runs.seeds, (SeedEffect(*effect) for effect in effects), strict=True)),
            configs=len(members),
            dof=max(1, len(runs.score) - len(members)),
            cutoff=cutoff,
        )

    def posterior(self, entry: Measured) -> Posterior:
        """Of a measured config: its runs without their seeds' effects, shrunk towards the mean.

        The variance counts that m and tau are estimated (Morris, JASA 78, 1983), and that all seeds
        together may be easy or hard ones, which a few seeds tell little about (degrees of freedom
        after Satterthwaite 1946). What is no member of the population is not shrunk.
        """
        effects = [self.seeds.get(seed, SeedEffect(0, self.seed_sd**2)) for seed in entry.scores]
        mean = entry.mean - sum(effect.mean for effect in effects) / entry.n
        variance = self.sigma**2 / entry.n
        own = variance
        if entry.mean <= self.cutoff:
            shrinkage = variance / (variance + self.sd**2)
            pull = shrinkage * (mean - self.mean)
            mean -= pull
            own *= 1 - shrinkage * (self.configs - 1) / self.configs
            own += 2 * pull**2 / max(1, self.configs - 3)
        own += sum(effect.variance for effect in effects) / entry.n**2
        seeds_dof = max(1, len(self.seeds) - 1)
        common = self.seed_sd**2 / seeds_dof
        dof = (own + common) ** 2 / (own**2 / self.dof + common**2 / seeds_dof)
        return Posterior(mean, math.sqrt(own + common), max(1, int(dof)))


def _cutoff(x: Floats) -> float:
    """The highest member among sorted means."""
    half = len(x) // 2 + 1
    widths = x[half - 1 :] - x[: len(x) - half + 1]
    first = int(np.argmin(widths))
    mean, sd = float(x[first : first + half].mean()), float(widths[first]) / _SHORTEST_HALF_SD
    kept = 0
    while (within := max(half, int(np.searchsorted(x, mean + CUTOFF_SD * sd, "right")))) > kept:
        kept = within
        mean, sd = float(x[:kept].mean()), float(x[:kept].std(ddof=1))
    return float(x[kept - 1])


@dataclass(frozen=True, slots=True)
class _Runs:
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
class _Fit:
    m: float
    tau2: float
    phi2: float
    sigma2: float
    effect: Floats
    """[S]: posterior means of b."""
    variance: Floats
    """[S]: and variances."""


def _maximise(runs: _Runs, sigma: float, *, seeds_known: bool) -> _Fit:
    """Variational EM. It starts with half of a run's variance in its seed, as two configs on one
    seed were found to correlate; phi² is divided by one seed less, as m takes their common part."""
    c_R, s_R, y_R = runs.config, runs.seed, runs.score
    n_C, n_S = np.bincount(c_R).astype(float), np.bincount(s_R).astype(float)
    nothing_S = np.zeros(len(n_S))
    phi2 = sigma**2 / 2 if seeds_known else 0.0  # and a phi of zero stays zero
    fit = _Fit(float(y_R.mean()), float(y_R.var()), phi2, sigma**2 - phi2, nothing_S, nothing_S)
    for _ in range(MAX_ROUNDS):
        before = np.array([fit.tau2, fit.phi2, fit.sigma2])
        keep_C = fit.tau2 / (fit.tau2 + fit.sigma2 / n_C)
        mean_C = np.bincount(c_R, y_R - fit.effect[s_R]) / n_C
        mu_C = fit.m + keep_C * (mean_C - fit.m)
        mu_variance_C = keep_C * fit.sigma2 / n_C

        keep_S = fit.phi2 / (fit.phi2 + fit.sigma2 / n_S)
        fit.effect = keep_S * np.bincount(s_R, y_R - mu_C[c_R]) / n_S
        fit.variance = keep_S * fit.sigma2 / n_S

        residual_R = y_R - mu_C[c_R] - fit.effect[s_R]
        fit.m = float(mu_C.mean())
        fit.tau2 = float(((mu_C - fit.m) ** 2 + mu_variance_C).mean())
        fit.phi2 = float((fit.effect**2 + fit.variance).sum()) / max(1, len(n_S) - 1)
        fit.sigma2 = float((residual_R**2 + mu_variance_C[c_R] + fit.variance[s_R]).mean())
        after = np.array([fit.tau2, fit.phi2, fit.sigma2])
        if np.all(np.abs(after - before) <= TOLERANCE * before):
            break
    return fit
