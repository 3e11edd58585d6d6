"""Model the scores of a campaign's recipes: the population with which a single one is compared.

The best of many configs is lucky as well as good. So the seed effects are removed from a config's
runs, and their mean is shrunk toward the scores of other recipes
(:mod:`trajectory.statistics.crossed_effects`). The noise of so many runs determines the amount of
shrinkage.

The difference from the baseline is the posterior mean minus the baseline's mean, both without seed
effects. The baseline was not chosen by its score, so it is not shrunk, and it has its own spread.
Five runs cannot show whether a seed affects the baseline and today's recipes alike. In one campaign
measured again, no common effect was left after seven keeps. So the larger of the paired and the
unpaired variance counts. The baseline's own posterior has the same spread
(:meth:`Population.baseline`), so no difference from it can look more certain than the baseline.

Intervals are Student's t with degrees of freedom after Satterthwaite (1946). They are never
narrower than without one of their parts; bench/judge_honesty.py measures how many of them hold.

Only sensible recipes belong to the population, so the members are found first. Starting from the
shortest half of the means, the set grows to a fixed point. It holds every mean less than CUTOFF_SD
standard deviations above its center, and every lower mean, because good configs are there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, variance
from typing import Self

import numpy as np

from trajectory.statistics.crossed_effects import Fit, Floats, Measured, Runs, take_apart
from trajectory.statistics.intervals import student_t

CUTOFF_SD = 3.0
MIN_CONFIGS = 8
"""Fewest configs that form a population."""
UNSHRUNK = 0.75
"""Share of the variance reduction from shrinkage that is not credited, because the shape that
determines the shrinkage is itself estimated. It was chosen in simulation. At 0, intervals of all
configs hold in 87 to 92 of 100 cases, not 95."""
_SHORTEST_HALF_SD = 1.349
"""Width of the middle half of a normal distribution, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Posterior:
    """Estimate of a config's score or difference, averaged over all possible seeds."""

    mean: float
    parts: tuple[tuple[float, float], ...]
    """Independent parts of its variance, each with its degrees of freedom."""

    @property
    def sd(self) -> float:
        """Standard deviation; infinite while the noise is unknown."""
        return math.sqrt(sum(part for part, _ in self.parts))

    @property
    def negative(self) -> "Posterior":
        """The posterior of the negative of the estimated value."""
        return Posterior(-self.mean, self.parts)

    def half_interval(self, level: float) -> float:
        """Return ``sd`` times Student's t, at least as large as without some of the parts.

        Satterthwaite's degrees of freedom grow with a part that is better known than the rest, and
        t may fall by more than the standard deviation rises. Without this minimum, a config
        measured once would look more certain than one measured four times.
        """
        p, half = (1 + level) / 2, 0.0
        for size in range(len(self.parts), 0, -1):
            for parts in combinations(self.parts, size):
                total = sum(part for part, _ in parts)
                least = min(dof for _, dof in parts)
                if total > 0 and student_t(p, least) * math.sqrt(total) > half:
                    dof = total**2 / sum(part**2 / dof for part, dof in parts)
                    half = max(half, student_t(p, dof) * math.sqrt(total))
        return half


@dataclass(frozen=True, slots=True)
class Population:
    """The fitted model, in bits per byte."""

    fit_: Fit
    seeds: dict[int, tuple[float, float]]
    """Effect of each seed, in units of k, and its variance."""
    cutoff: float
    """Highest mean of a member."""

    @classmethod
    def fit(
        cls, entries: Sequence[Measured], sigma: float, *, seeds_known: bool = True
    ) -> Self | None:
        """Fit the population of these measured configs; return None if there are too few or no
        noise.

        :param entries: all configs except the baseline, which is compared with them.
        :param sigma: pooled standard deviation of one run within a config, with seed effects.
        :param seeds_known: False if the keys of the scores are not seeds.
        """
        if len(entries) < MIN_CONFIGS or sigma == 0:
            return None
        means = np.array([entry.mean for entry in entries])
        cutoff = _cutoff(np.sort(means))
        members = [entry for entry, mean in zip(entries, means, strict=True) if mean <= cutoff]
        runs = Runs.of(members)
        fitted = take_apart(runs, sigma, seeds_known=seeds_known)
        effects = zip(fitted.effect.tolist(), fitted.variance.tolist(), strict=True)
        return cls(fitted, dict(zip(runs.seeds, effects, strict=True)), cutoff)

    def posterior(self, entry: Measured) -> Posterior:
        """Return the posterior of a measured config; only members of the population are shrunk."""
        mean, own, k = self._own(entry)
        return Posterior(mean, ((own, self.fit_.dof), self._frame(k)))

    def baseline(self, entry: Measured) -> Posterior:
        """Return the posterior of the measured baseline, without shrinkage, as its score did not
        choose it."""
        mean, part = self._baseline(entry)
        return Posterior(mean, (part,))  # the effects of its own seeds are in its spread

    def difference(self, entry: Measured, baseline: Measured) -> Posterior:
        """Return the posterior of the difference from the measured baseline; negative is better."""
        mean, own, k = self._own(entry)
        mean_0, part_0 = self._baseline(baseline)
        frame = self._frame(abs(k - self._k(baseline.mean)))
        return Posterior(mean - mean_0, ((own, self.fit_.dof), part_0, frame))

    def between(self, one: Measured, other: Measured) -> Posterior:
        """Return the posterior of the difference of two configs, in which what seeds did to both
        cancels on their common seeds."""
        means, parts = [], []
        for entry, rival in ((one, other), (other, one)):
            mean, own, k = self._own(entry)
            common = entry.scores.keys() & rival.scores.keys()
            cancels = k**2 * sum(self.seeds[s][1] for s in common if s in self.seeds) / entry.n**2
            means.append(mean)
            parts.append((max(0.0, own - cancels), self.fit_.dof))
        return Posterior(means[0] - means[1], tuple(parts))

    def _baseline(self, baseline: Measured) -> tuple[float, tuple[float, float]]:
        """Return the baseline's mean without its seeds' effects, and that mean's variance with its
        degrees of freedom.

        If it was run at least twice, the variance is its own, paired or unpaired. Otherwise it is
        that of a recipe with a similar score.
        """
        k, none = self._k(baseline.mean), (0.0, 0.0)
        scores = baseline.scores.items()
        unseeded = [score - k * self.seeds.get(seed, none)[0] for seed, score in scores]
        if baseline.n > 1:
            plain = list(baseline.scores.values())
            spread, dof = max(variance(unseeded), variance(plain)), float(baseline.n - 1)
        else:
            fit = self.fit_
            spread, dof = self._k(baseline.mean) ** 2 * (fit.sigma2 + fit.phi2), fit.dof
        return fmean(unseeded), (spread / baseline.n, dof)

    def _own(self, entry: Measured) -> tuple[float, float, float]:
        """Return the config's posterior mean, the variance not shared by all configs, and its k."""
        effects = [self.seeds.get(seed, (0.0, self.fit_.phi2)) for seed in entry.scores]
        k = self._k(entry.mean)
        mean = entry.mean - k * fmean(effect for effect, _ in effects)
        noise = k**2 * self.fit_.sigma2 / entry.n
        own = noise
        if entry.mean <= self.cutoff and self.fit_.shape is not None:
            means, variances = self.fit_.shape.believed(
                np.array([mean]), np.array([float(entry.n)])
            )
            mean, own = float(means[0]), float(variances[0])
            k = self._k(mean)
            noise = float(self.fit_.run_variance(means)[0]) / entry.n
            own += UNSHRUNK * max(0.0, noise - own)
        return mean, own + k**2 * sum(v for _, v in effects) / entry.n**2, k

    def _frame(self, k: float) -> tuple[float, float]:
        """Return the variance that all configs share, with its degrees of freedom.

        The seeds together may be easy or hard, and a few seeds carry little information about that.
        """
        return k**2 * self.fit_.phi2 / len(self.seeds), self.fit_.seed_dof

    def _k(self, bpb: float) -> float:
        """Return k at a score; beyond the members, where the noise is unknown, that of the worst
        member."""
        return float(self.fit_.k(np.array([min(bpb, self.cutoff)]))[0])


def _cutoff(x: Floats) -> float:
    """Return the mean of the highest member, from sorted means."""
    half = len(x) // 2 + 1
    widths = x[half - 1 :] - x[: len(x) - half + 1]
    first = int(np.argmin(widths))
    mean, sd = float(x[first : first + half].mean()), float(widths[first]) / _SHORTEST_HALF_SD
    kept = 0
    while (within := max(half, int(np.searchsorted(x, mean + CUTOFF_SD * sd, "right")))) > kept:
        kept = within
        mean, sd = float(x[:kept].mean()), float(x[:kept].std(ddof=1))
    return float(x[kept - 1])
