"""Predict which gain a search can find: one that its race keeps and its confirmation confirms.

A race keeps an idea of a true gain if its first pair is no loss and its last pair is over the bar.
Both differences are normal, and they correlate as their standard errors do, ``last / first``. The
rare keeps and discards between the two are left out. A confirmation on S fresh seeds is Student's t
of S - 1 degrees of freedom (the normal approximation of its noncentral distribution; Johnson and
Welch, Biometrika 31, 1940). Its text's own spread is unknown beforehand and left out.

The noise itself is an estimate from a few runs. So the probability is averaged over the noise that
may be behind it (scaled inverse chi-square). Before the first race, nobody knows which part of the
noise seeds share. It is taken as none, so the statement is cautious then. bench/night_power.py
measures how often it is right.
"""

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Self

from autoresearch.values import Frozen, Positive, PositiveInt
from trajectory.confirmation import CONFIRM_SEEDS, LEVEL
from trajectory.ranking import Noise
from trajectory.rows import Rules
from trajectory.statistics.intervals import student_t

POWER = 0.8
"""Share of the ideas of the stated gain that are kept and confirmed."""
_NORMAL = NormalDist()
_GRID = [_NORMAL.inv_cdf((i + 0.5) / 32) for i in range(32)]
NOISES = 16
MOST_SEEDS = 1000
"""Largest number of seeds that is worth stating."""


class Power(Frozen):
    """The smallest gain that a search keeps and confirms in :data:`POWER` of all cases."""

    gain: Positive
    """In the score's unit."""
    in_sds: Positive
    """As a multiple of the sd of one run."""
    halving_runs: PositiveInt | None
    """``max_runs``, with a first pair that may lose one ``sigma_d``, that finds half this gain, if
    the confirmation has half as many seeds again; None: no number that is worth it."""

    @classmethod
    def of(cls, noise: Noise, rules: Rules, reference_runs: int) -> Self | None:
        """Return the power of races against a reference with so many runs; None without noise."""
        if noise.sigma_d <= 0:
            return None
        low, high = 0.0, 10 * (1 + rules.z_keep) * noise.sigma_d
        for _ in range(30):
            middle = (low + high) / 2
            if found(middle, noise, rules, reference_runs, CONFIRM_SEEDS) < POWER:
                low = middle
            else:
                high = middle
        lenient = {"early_stopping_threshold": max(1.0, rules.early_stopping_threshold)}
        halving = None
        for runs in range(rules.max_runs, 16 * rules.max_runs):
            longer = rules.model_copy(update={**lenient, "max_runs": runs})
            if found(high / 2, noise, longer, reference_runs, confirm_seeds(runs)) >= POWER:
                halving = runs
                break
        return cls(gain=high, in_sds=high / noise.sigma, halving_runs=halving)

    @property
    def halved_by(self) -> str:
        """What would halve the gain, as a clause."""
        text = "longer trials with half the noise"
        if self.halving_runs is not None:
            text += (
                f", or a campaign with --set max_runs={self.halving_runs} --set "
                f"early_stopping_threshold=1 and confirm --seeds {confirm_seeds(self.halving_runs)}"
            )
        return text


def confirm_seeds(max_runs: int) -> int:
    """Return the fresh seeds that suit races of so many runs."""
    return max(CONFIRM_SEEDS, math.ceil(1.5 * max_runs))


def found(gain: float, noise: Noise, rules: Rules, reference_runs: int, seeds: int) -> float:
    """Return the probability that an idea of this true gain is kept, and then confirmed."""
    first_se = noise.stderr(1, reference_runs)
    last_se = noise.stderr(rules.max_runs, reference_runs)
    bar = rules.z_keep * last_se
    most_loss = rules.early_stopping_threshold * noise.sigma_d
    share = (last_se / first_se) ** 2
    probability = 0.0
    for ratio in _true_to_measured(noise.dof):
        rest = ratio * last_se * math.sqrt(1 - share)
        kept = 0.0
        for deviate in _GRID:
            first = ratio * first_se * deviate
            if first - gain <= most_loss:
                kept += _NORMAL.cdf((gain - share * first - bar) / rest)
        effect = gain * math.sqrt(seeds) / (ratio * noise.sigma_d)
        probability += kept / len(_GRID) * _confirmed(effect, seeds, 0)
    return probability / NOISES


@lru_cache
def _true_to_measured(dof: int) -> list[float]:
    """Return equally likely ratios of the true noise to that measured with so many degrees of
    freedom (Wilson and Hilferty's approximation of chi-square)."""
    ratios = []
    for i in range(NOISES):
        deviate = _NORMAL.inv_cdf((i + 0.5) / NOISES)
        root = 1 - 2 / (9 * dof) + deviate * math.sqrt(2 / (9 * dof))
        ratios.append(max(root, 0.1) ** -1.5)
    return ratios


def _confirmed(effect: float, seeds: int, earlier_analyses: int) -> float:
    """Return the probability that a confirmation's interval excludes zero.

    :param effect: the true gain in standard errors of the confirmation.
    """
    dof = seeds - 1
    bar = student_t(1 - (1 - LEVEL) / (1 + earlier_analyses) / 2, dof)
    return _NORMAL.cdf((effect - bar * (1 - 0.25 / dof)) / math.sqrt(1 + bar**2 / (2 * dof)))


def seeds_to_tell(gain: float, sd: float, measured: int, earlier_analyses: int) -> int | None:
    """Return the fresh seeds on which a further confirmation would show this gain in :data:`POWER`
    of all cases; None if over :data:`MOST_SEEDS`.

    :param sd: of the difference of two runs on one seed.
    :param measured: seeds measured already.
    """
    for seeds in range(measured + 1, MOST_SEEDS + 1):
        if _confirmed(gain * math.sqrt(seeds) / sd, seeds, earlier_analyses) >= POWER:
            return seeds
    return None
