"""What fresh runs say of the finalists: differences to the baseline, with intervals that hold.

None of these runs chose anything, so the mean difference is unbiased as it stands: no shrinking.
With ``d[s, p]`` the difference of a finalist and the baseline on seed ``s`` and part ``p`` of a
text (each part weighs by its share ``w[p]`` of the bytes) the estimate is the weighted mean, and
its variance is taken to be

    var over s of (sum over p of w[p] d[s, p]) / S
    + c sum over p of w[p]² (mean over s of d[s, p] - estimate)²

The first term is what other seeds would change, the second what other text of the kind would.
There ``c = W2 / (W2 - 2 W3 + W2²)`` with ``Wk`` the sum of ``w[p]**k`` makes the sum unbiased where
parts vary alike; for equal parts it is P / (P - 1). What seeds and parts do together stands in both
terms, so their sum is never too small for it. Degrees of freedom by Satterthwaite, from S - 1 and
1 / W2 - 1, which is P - 1 for equal parts; no interval is narrower than without one of the terms,
for with two seeds the other's degrees of freedom would outweigh what it adds. Where that is below 1
(a text of one part, or nearly), and on the search's own text, of which no parts are known, the
first term stands alone and the interval is about that very text.

One finalist, the search's first, was chosen before these runs: its 95 % interval is Student's t.
Whoever picks among K by these runs chooses again, so each also has the interval at 1 - 0.05 / K,
which all K keep together in 95 of 100 (Bonferroni). Whoever asks again, with more seeds or after
more of the search or on another text, looks again: at the j-th look 0.05 is 0.05 / j. That
is not a bound for any number of looks, and one look is best. How often they do, and what is
promised too much, bench/confirm_honesty.py measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from trainer.spec import Measure, Measured, ScoredText, TrialFailed, TrialOk
from trajectory.confirmed import OWN_RULER, SEARCH_TEXT, FreshGain
from trajectory.statistics.population import Posterior

LEVEL = 0.95
FEWEST_SEEDS = 2
"""With one seed nothing is known of the noise."""
FEWEST_DOF_OF_TEXT = 1 - 1e-9
"""What two equal parts have; with less there is no spread to speak of."""


@dataclass(frozen=True, slots=True)
class FreshRuns:
    """One config's fresh runs, by seed."""

    results: Mapping[int, Measured | TrialFailed]

    @property
    def failed(self) -> tuple[int, TrialFailed] | None:
        """Its first failure, and on which seed."""
        failures = ((seed, self.results[seed]) for seed in sorted(self.results))
        return next(((s, one) for s, one in failures if isinstance(one, TrialFailed)), None)

    def measured(self) -> dict[int, Measured]:
        """The runs that ended with a score."""
        return {s: one for s, one in self.results.items() if not isinstance(one, TrialFailed)}


def gains(
    finalist: FreshRuns,
    baseline: FreshRuns,
    texts: Sequence[ScoredText],
    *,
    finalists: int,
    looks: int = 0,
    measure: Measure | None = None,
) -> tuple[FreshGain, ...]:
    """The finalist's difference to the baseline on the search's text, or by a command's own
    ruler, and on each of ``texts``.

    :param texts: which every run has scored.
    :param finalists: how many configs the confirmation has besides the baseline.
    :param looks: at confirmations of the campaign, before this one.
    :param measure: what a command's scores are of; None: bits per byte.
    :returns: nothing where fewer than FEWEST_SEEDS seeds measured both.
    """
    ours, theirs = finalist.measured(), baseline.measured()
    seeds = sorted(ours.keys() & theirs.keys())
    if len(seeds) < FEWEST_SEEDS:
        return ()
    plain = [[ours[seed].objective - theirs[seed].objective] for seed in seeds]
    level = 1 - (1 - LEVEL) / (1 + looks)
    name = SEARCH_TEXT if measure is None else OWN_RULER
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
    assert isinstance(result, TrialOk)  # a command is given no text
    return next(one.parts_bpb for one in result.texts if one.sha256 == text.sha256)


def _gain(
    name: str,
    differences: Sequence[Sequence[float]],
    shares: Sequence[float],
    finalists: int,
    level: float,
) -> FreshGain:
    """:param differences: by seed, then by part."""
    seeds = len(differences)
    by_seed = [_weighted(row, shares) for row in differences]
    by_part = [fmean(column) for column in zip(*differences, strict=True)]
    delta = fmean(by_seed)
    of_seeds = variance(by_seed) / seeds
    dof_of_text = 1 / _power(shares, 2) - 1
    has_spread = dof_of_text >= FEWEST_DOF_OF_TEXT
    of_text = _of_text(by_part, shares, delta) if has_spread else 0.0
    terms: tuple[tuple[float, float], ...] = ((of_seeds, seeds - 1),)
    if has_spread:
        terms += ((of_text, dof_of_text),)
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


def _of_text(by_part: Sequence[float], shares: Sequence[float], delta: float) -> float:
    squares = ((w * (one - delta)) ** 2 for w, one in zip(shares, by_part, strict=True))
    second = _power(shares, 2)
    return second / (second - 2 * _power(shares, 3) + second**2) * math.fsum(squares)


def _power(shares: Sequence[float], exponent: int) -> float:
    return math.fsum(share**exponent for share in shares)


def _weighted(values: Sequence[float], shares: Sequence[float]) -> float:
    return math.fsum(w * one for w, one in zip(shares, values, strict=True))


def _degrees(terms: Sequence[tuple[float, float]]) -> float:
    """Satterthwaite's, of a sum of variances each with its own; Biometrics Bulletin 2, 1946."""
    total = math.fsum(value for value, _ in terms)
    if total <= 0:
        return terms[0][1]
    return total**2 / math.fsum(value**2 / dof for value, dof in terms if value > 0)
