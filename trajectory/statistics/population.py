"""What recipes of a campaign score in general: the population a single one is judged against.

The best of many is lucky as well as good, so a config's runs are read against all others: without
their seeds' effects (:mod:`trajectory.statistics.crossed_effects`), and shrunk towards where
recipes were found to lie (:mod:`trajectory.statistics.prior_shape`) by as much as the noise of so
many runs warrants.

The difference to the baseline is the believed score less the baseline's mean, each seed's effect
taken out of both. The baseline was not chosen by its score, so it is not shrunk; its spread is its
own. Whether a seed did to the baseline what it does to today's recipes cannot be told from five
runs (in one campaign measured afresh, none of it was left after seven keeps), so the larger of the
paired variance and the unpaired counts. What is said of the baseline by itself has the same spread
(:meth:`Population.baseline`): beside it no difference to it can look surer than it is. Intervals
are Student's t, the degrees of freedom after Satterthwaite (1946), and never narrower than without
one of their parts; bench/judge_honesty.py measures how many of them hold.

Only sensible recipes belong to the population. So the members are found first: from the shortest
half of the means outwards, to a fixed point, all that lie under CUTOFF_SD sd above it (and all
below it: there are the finds).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, variance
from typing import Self

import numpy as np

from trajectory.statistics.crossed_effects import Fit, Measured, Runs, take_apart
from trajectory.statistics.prior_shape import Floats
from trajectory.statistics.student import student_t

CUTOFF_SD = 3.0
MIN_CONFIGS = 8
"""Fewer configs are no population."""
UNSHRUNK = 0.75
"""The share of what shrinking saves of a mean's variance that is not believed: the shape it was
shrunk by is estimated as well. Chosen in simulation: with none of it, intervals of all configs hold
in 87 to 92 of 100 cases, not 95."""
_SHORTEST_HALF_SD = 1.349
"""Width in sd of the middle half of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Posterior:
    """What a config is believed to score, or to differ by, on average over all seeds there are."""

    mean: float
    parts: tuple[tuple[float, float], ...]
    """Independent parts of its variance, each with its degrees of freedom."""

    @property
    def sd(self) -> float:
        """Infinite where the noise is unknown."""
        return math.sqrt(sum(part for part, _ in self.parts))

    def half_interval(self, level: float) -> float:
        """``sd`` times Student's t, and no less than without some of the parts.

        Satterthwaite's degrees of freedom grow with a part that is better known than the rest, and
        t falls by more than the sd rises: a config measured once would look surer than one
        measured four times.
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
    """The fitted model. All in bits per byte."""

    fit_: Fit
    seeds: dict[int, tuple[float, float]]
    """The effect of each seed, in units of k, and its variance."""
    configs: int
    """Members it was fitted to."""
    cutoff: float
    """The highest mean of a member."""

    @classmethod
    def fit(
        cls, entries: Sequence[Measured], sigma: float, *, seeds_known: bool = True
    ) -> Self | None:
        """The population of these measured configs; None where they are too few to tell.

        :param entries: all but the baseline, which is held against it.
        :param sigma: pooled sd of one run within a config, seed effects included.
        :param seeds_known: False where the keys of the scores are no seeds.
        """
        if len(entries) < MIN_CONFIGS or sigma == 0:
            return None
        means = np.array([entry.mean for entry in entries])
        cutoff = _cutoff(np.sort(means))
        members = [entry for entry, mean in zip(entries, means, strict=True) if mean <= cutoff]
        runs = Runs.of(members)
        fitted = take_apart(runs, sigma, seeds_known=seeds_known)
        effects = zip(fitted.effect.tolist(), fitted.variance.tolist(), strict=True)
        return cls(fitted, dict(zip(runs.seeds, effects, strict=True)), len(members), cutoff)

    @property
    def sd(self) -> float:
        """Sd of the true scores, as their shape has them."""
        shape = self.fit_.shape
        if shape is None:
            return 0.0
        middle = float(shape.weight @ shape.place)
        return math.sqrt(float(shape.weight @ ((shape.place - middle) ** 2 + shape.width**2)))

    @property
    def sigma(self) -> float:
        """Sd of one run of a middling recipe, the seed's effect taken out."""
        return math.sqrt(self.fit_.sigma2)

    def posterior(self, entry: Measured) -> Posterior:
        """The posterior of a measured config; what is no member of the population is not
        shrunk."""
        mean, own, k = self._own(entry)
        return Posterior(mean, ((own, self.fit_.dof), self._frame(k)))

    def baseline(self, entry: Measured) -> Posterior:
        """The posterior of the measured baseline: not chosen by its score, it is not shrunk."""
        mean, part = self._baseline(entry)
        return Posterior(mean, (part, self._frame(self._k(entry.mean))))

    def difference(self, entry: Measured, baseline: Measured) -> Posterior:
        """From the measured baseline; negative is better."""
        mean, own, k = self._own(entry)
        mean_0, part_0 = self._baseline(baseline)
        frame = self._frame(abs(k - self._k(baseline.mean)))
        return Posterior(mean - mean_0, ((own, self.fit_.dof), part_0, frame))

    def _baseline(self, baseline: Measured) -> tuple[float, tuple[float, float]]:
        """Return its mean without its seeds' effects, and that one's variance and degrees of
        freedom: from its own spread, paired or unpaired, if it was run twice, otherwise from that
        of a recipe that scores alike."""
        unseeded = self._unseeded(baseline)
        if baseline.n > 1:
            plain = list(baseline.scores.values())
            spread, dof = max(variance(unseeded), variance(plain)), float(baseline.n - 1)
        else:
            fit = self.fit_
            spread, dof = self._k(baseline.mean) ** 2 * (fit.sigma2 + fit.phi2), fit.dof
        return fmean(unseeded), (spread / baseline.n, dof)

    def _unseeded(self, entry: Measured) -> list[float]:
        """Its scores, the seeds' effects taken out."""
        k = self._k(entry.mean)
        return [
            score - k * self.seeds.get(seed, (0.0, 0.0))[0] for seed, score in entry.scores.items()
        ]

    def _own(self, entry: Measured) -> tuple[float, float, float]:
        """Its believed score, that one's variance but for what all configs share, and its k."""
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
        """What all configs share: the seeds together may be easy or hard ones, which a few seeds
        tell little about. Its variance and degrees of freedom."""
        seeds = len(self.seeds)
        return k**2 * self.fit_.phi2 / seeds, max(1, seeds - 1)

    def _k(self, bpb: float) -> float:
        """Beyond the members nothing is known of the noise: it is taken for the worst member's."""
        return float(self.fit_.k(np.array([min(bpb, self.cutoff)]))[0])


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
