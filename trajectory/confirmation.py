"""Estimate the finalists' differences from the baseline by fresh runs, with valid intervals.

None of these runs chose anything, so their mean difference is unbiased and needs no shrinkage. Let
``d[s, p]`` be the difference between a finalist and the baseline on seed ``s`` and part ``p`` of a
text. Each part is weighted by its share ``w[p]`` of the bytes. The estimate is the weighted mean,
and its variance is estimated as

    var over s of (sum over p of w[p] d[s, p]) / S
    + c sum over p of w[p]² (mean over s of d[s, p] - estimate)²

The first term covers other seeds, the second other text of the same kind.

The factor is ``c = W2 / (W2 - 2 W3 + W2²)``, where ``Wk`` is the sum of ``w[p]**k``. It makes the
second term unbiased if the parts vary alike; for equal parts it is P / (P - 1). The interaction of
seeds and parts is in both terms, so their sum never underestimates it.

The degrees of freedom follow Satterthwaite, from S - 1 and 1 / W2 - 1, which is P - 1 for equal
parts. No interval is narrower than it would be without one of the terms: with two seeds, the second
term's degrees of freedom would outweigh the variance it adds. The first term stands alone if the
latter is below 1 (a text of one part, or nearly). It also stands alone on the search's own text,
whose parts are not known. Then the interval applies to that exact text.

The search chose one finalist, its first, before these runs: its 95 % interval is Student's t.
Choosing among K finalists by these runs is another selection. So each finalist also has an interval
at 1 - 0.05 / K; all K hold together in 95 of 100 cases (Bonferroni). Each repeated confirmation,
with more seeds, after more of the search or on another text, is another interim analysis: at the
j-th, 0.05 becomes 0.05 / j. That does not bound an unlimited number of analyses, and one is best.
bench/confirm_honesty.py measures how often the intervals hold and how much is overstated.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from statistics import fmean, variance

from trainer.schema import Measure, Measured, ScoredText, TrialFailed
from trajectory.confirmed import OWN_SCORE, SEARCH_TEXT, FreshGain
from trajectory.statistics.population import Posterior

LEVEL = 0.95
CONFIRM_SEEDS = 6
"""Fresh seeds of a confirmation by default."""
FEWEST_SEEDS = 2
"""Fewest seeds that allow an estimate of the noise."""
FEWEST_DOF_OF_TEXT = 1 - 1e-9
"""Fewest degrees of freedom for a spread over parts: those of two equal parts."""


@dataclass(frozen=True, slots=True)
class FreshRuns:
    """One config's fresh runs, by seed."""

    results: Mapping[int, Measured | TrialFailed]

    @property
    def failed(self) -> tuple[int, TrialFailed] | None:
        """The first failure with its seed, or None."""
        failures = ((seed, self.results[seed]) for seed in sorted(self.results))
        return next(((s, one) for s, one in failures if isinstance(one, TrialFailed)), None)

    def measured(self) -> dict[int, Measured]:
        """Return the runs that ended with a score, by seed."""
        return {s: one for s, one in self.results.items() if not isinstance(one, TrialFailed)}


def gains(
    finalist: FreshRuns,
    baseline: FreshRuns,
    texts: Sequence[ScoredText],
    *,
    finalists: int,
    earlier_analyses: int = 0,
    measure: Measure | None = None,
) -> tuple[FreshGain, ...]:
    """Return the finalist's differences from the baseline: first on the search's own text (or by a
    command's own evaluation protocol), then on each of ``texts``.

    :param texts: texts that every run has scored.
    :param finalists: number of configs in the confirmation besides the baseline.
    :param earlier_analyses: number of earlier confirmations of the campaign.
    :param measure: unit of a command's scores; None: bits per byte.
    :returns: an empty tuple if fewer than FEWEST_SEEDS seeds measured both.
    """
    ours, theirs = finalist.measured(), baseline.measured()
    seeds = sorted(ours.keys() & theirs.keys())
    if len(seeds) < FEWEST_SEEDS:
        return ()
    plain = [[ours[seed].objective - theirs[seed].objective] for seed in seeds]
    level = 1 - (1 - LEVEL) / (1 + earlier_analyses)
    name = SEARCH_TEXT if measure is None else OWN_SCORE
    found = [_gain(name, plain, [1.0], finalists, level)]
    for text in texts:
        differences = [
            [
                new - old
                for new, old in zip(_parts(ours[s], text), _parts(theirs[s], text), strict=True)
            ]
            for s in seeds
        ]
        shares = [part.bytes / text.bytes for part in text.parts]
        found.append(_gain(text.name, differences, shares, finalists, level))
    return tuple(gain.model_copy(update={"measure": measure}) for gain in found)


def _parts(result: Measured, text: ScoredText) -> tuple[float, ...]:
    return next(one.parts_bpb for one in result.texts if one.sha256 == text.sha256)


def _gain(
    name: str,
    differences: Sequence[Sequence[float]],
    shares: Sequence[float],
    finalists: int,
    level: float,
) -> FreshGain:
    """Return the gain on one text.

    :param differences: by seed, then by part.
    """
    seeds = len(differences)
    by_seed = [math.fsum(map(mul, shares, row)) for row in differences]
    by_part = [fmean(column) for column in zip(*differences, strict=True)]
    delta = fmean(by_seed)
    of_seeds = variance(by_seed) / seeds
    dof_of_text = 1 / _power(shares, 2) - 1
    has_spread = dof_of_text >= FEWEST_DOF_OF_TEXT
    terms: tuple[tuple[float, float], ...] = ((of_seeds, seeds - 1),)
    if has_spread:
        squares = ((w * (one - delta)) ** 2 for w, one in zip(shares, by_part, strict=True))
        second = _power(shares, 2)
        scale = second / (second - 2 * _power(shares, 3) + second**2)
        terms += ((scale * math.fsum(squares), dof_of_text),)
    spread = Posterior(delta, terms)
    half = spread.half_interval(level)
    wide = spread.half_interval(1 - (1 - level) / finalists)
    return FreshGain(
        text=name,
        holds_for="text like it" if has_spread else "this text",
        delta=delta,
        lo=delta - half,
        hi=delta + half,
        all_lo=delta - wide,
        all_hi=delta + wide,
        seeds=seeds,
        dof=_degrees(terms),
    )


def _power(shares: Sequence[float], exponent: int) -> float:
    return math.fsum(share**exponent for share in shares)


def _degrees(terms: Sequence[tuple[float, float]]) -> float:
    """Return Satterthwaite's degrees of freedom of a sum of variances, each with its own.

    Source: Biometrics Bulletin 2, 1946.
    """
    total = math.fsum(value for value, _ in terms)
    if total <= 0:
        return terms[0][1]
    return total**2 / math.fsum(value**2 / dof for value, dof in terms if value > 0)
