"""Compute the limits of the score axis in the report and on the live page."""

from __future__ import annotations

from collections.abc import Sequence

ROOM_SD = 8.0
"""Standard deviations of one run by which a score may be worse than usual and still be drawn."""
BAR_SD = 4.0
"""Half-length of intervals that the axis shows, in standard deviations. Intervals are longer only
with one or two degrees of freedom; shown whole, they would flatten the scores."""
MARGIN = 0.06


def score_limits(
    scores: Sequence[tuple[float, float]],
    baseline: tuple[float, float] | None,
    incumbents: Sequence[float],
    sigma: float | None,
) -> tuple[float, float]:
    """Return the lowest and highest objective on the axis.

    A score is off the scale if it is worse than the median and the baseline by two limits: ROOM_SD
    standard deviations, and the amount by which the best score is better. So a diverged run does
    not flatten the rest.

    :param scores: means of candidates, each with half the length of its interval.
    :param baseline: mean and half-length of the baseline; None before it was measured.
    :param incumbents: posterior means of the incumbents.
    :param sigma: standard deviation of one run; None while it is unknown.
    """
    sd = sigma or 0.0
    drawn = [baseline] if baseline else []
    if scores:
        means = sorted(mean for mean, _ in scores)
        usual = max([means[(len(means) - 1) // 2], *(mean for mean, _ in drawn)])
        most = usual + max(ROOM_SD * sd, usual - means[0])
        drawn += [(mean, half) for mean, half in scores if mean <= most]
    ends = [*incumbents]
    for mean, half in drawn:
        ends += [mean - min(half, BAR_SD * sd), mean + min(half, BAR_SD * sd)]
    if not ends:
        return 0.0, 1.0
    low, high = min(ends), max(ends)
    margin = MARGIN * (high - low) or 0.01 * abs(high) or 0.01
    return low - margin, high + margin
