"""Check that intervals of scores hold when all configs share a seed's effect."""

from __future__ import annotations

from statistics import fmean

from bench.judge_honesty import reported
from bench.judge_nights import nights
from bench.judge_worlds import shared_seeds
from trajectory.rules import Rules


def test_intervals_hold_the_mean_effect_of_the_seeds() -> None:
    """The campaigns are fixed; without the effect's variance 91 % of scores' intervals hold."""
    ended = nights(
        shared_seeds(), Rules(), 40, enough=lambda night: night.evidence.tally.iterations >= 12
    )
    judged = [reported(night) for night in ended]
    assert fmean(one.every for one in judged) >= 0.93
    assert fmean(one.every_difference for one in judged) >= 0.93
