"""Resampling starts with the plain correlation, and two proxy metrics share their resamples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.present import known
from trajectory.statistics.fidelity import Resampled, interval, kendall, spearman

X = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0]
Y = [2.0, 7.0, 1.0, 8.0, 2.0, 8.0, 1.0, 8.0, 2.0, math.inf]


def test_the_first_is_the_plain_correlation_ties_and_lost_runs_included() -> None:
    draws = Resampled(len(X), resamples=50)
    assert draws.spearman(X, Y)[0] == pytest.approx(spearman(X, Y))
    assert draws.kendall(X, Y)[0] == pytest.approx(kendall(X, Y))


def test_every_draw_is_the_correlation_of_the_configs_drawn() -> None:
    draws = Resampled(len(X), resamples=20, seed=3)
    for counts, rho, tau in zip(
        draws.counts_DN, draws.spearman(X, Y), draws.kendall(X, Y), strict=True
    ):
        drawn = [i for i, count in enumerate(counts) for _ in range(int(count))]
        assert len(drawn) == len(X)
        x, y = [X[i] for i in drawn], [Y[i] for i in drawn]
        assert rho == pytest.approx(spearman(x, y))
        assert tau == pytest.approx(kendall(x, y))


def test_one_way_gains_nothing_over_itself() -> None:
    draws = Resampled(len(X))
    gain = known(interval(draws.spearman(X, Y) - draws.spearman([2 * x + 1 for x in X], Y)))
    assert (gain.lo, gain.value, gain.hi) == (0, 0, 0)


def test_what_all_ways_are_to_keep_at_once_is_wider() -> None:
    draws = Resampled(len(X))
    alone, together = (interval(draws.spearman(X, Y), at_once) for at_once in (1, 12))
    assert alone is not None and together is not None
    assert together.lo < alone.lo <= alone.value <= alone.hi < together.hi


def test_scores_that_are_all_alike_have_no_correlation() -> None:
    assert interval(Resampled(5).spearman([1, 1, 1, 1, 1], [1, 2, 3, 4, 5])) is None


def test_intervals_hold_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    true_rho, worlds, held = 6 / math.pi * math.asin(0.35), 120, 0
    for world in range(worlds):
        x = rng.normal(size=40)
        y = 0.7 * x + math.sqrt(1 - 0.49) * rng.normal(size=40)
        found = known(interval(Resampled(40, 400, world).spearman(x.tolist(), y.tolist())))
        held += found.lo <= true_rho <= found.hi
    assert 0.88 < held / worlds <= 0.99
