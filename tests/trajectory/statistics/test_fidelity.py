"""Test rank correlations and their intervals against computations by hand."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import known
from trajectory.statistics.fidelity import (
    MIN_CONFIGS,
    Resampled,
    fidelity,
    interval,
    kendall,
    spearman,
)
from trajectory.statistics.intervals import student_t

scores = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=MIN_CONFIGS, max_size=30
).filter(lambda pairs: len({x for x, _ in pairs}) > 1 and len({y for _, y in pairs}) > 1)


def test_the_examples_of_scipy_with_ties() -> None:
    assert spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) == pytest.approx(0.8207826816681233)
    assert kendall([12, 2, 1, 12, 2], [1, 4, 7, 1, 0]) == pytest.approx(-0.47140452079103173)


def test_intervals_by_hand() -> None:
    x = list(range(20))
    y = [*range(10, 20), *range(10)]  # two halves, swapped: rho -0.5038, tau -1/19
    found = known(fidelity(x, y))
    rho, tau = found.spearman, found.kendall
    assert rho.value == pytest.approx(1 - 6 * 20 * 100 / (20 * 399))
    sd = math.sqrt((1 + rho.value**2 / 2) / 17)
    assert rho.lo == pytest.approx(math.tanh(math.atanh(rho.value) - 1.959964 * sd), abs=1e-6)
    assert rho.hi == pytest.approx(math.tanh(math.atanh(rho.value) + 1.959964 * sd), abs=1e-6)
    assert tau.value == pytest.approx(-10 / 190)
    half = 1.959964 * math.sqrt(0.437 / 16)
    assert tau.lo == pytest.approx(math.tanh(math.atanh(tau.value) - half), abs=1e-6)
    assert found.concordance.value == pytest.approx((190 - 100) / 190)


def test_a_perfect_order_of_a_few_is_no_proof() -> None:
    few, many = (known(fidelity(range(n), range(n))) for n in (6, 40))
    assert few.spearman.value == few.kendall.value == 1.0
    assert few.spearman.hi == few.kendall.hi == 1.0
    assert few.kendall.lo < 0.7
    assert many.kendall.lo > 0.95
    reversed_ = known(fidelity(range(6), range(6, 0, -1)))
    assert reversed_.kendall.value == -1.0
    assert reversed_.kendall.hi == pytest.approx(-few.kendall.lo)


def test_where_configs_tie_the_share_is_of_the_pairs_that_do_not() -> None:
    found = known(fidelity(range(8), [1, 2, 3, 4, *[math.inf] * 4]))
    assert found.kendall.value < 0.9
    assert found.concordance.value == 1.0
    below, above = (known(fidelity(range(n), range(n))).gamma.lo for n in (7, 8))
    assert below <= found.gamma.lo < above
    untied = known(fidelity(range(8), [1, 2, 3, 4, 5, 6, 8, 7]))
    assert untied.gamma == untied.kendall
    tied = known(fidelity([1, 1, 1, 1, 2], [1, 2, 3, 4, math.inf]))
    assert math.isfinite(tied.concordance.lo)


def test_too_few_or_all_alike_have_none() -> None:
    assert fidelity([1, 2, 3, 4], [1, 2, 3, 4]) is None
    assert fidelity([1, 1, 1, 1, 1], [1, 2, 3, 4, 5]) is None
    assert fidelity([1, 2, 3, 4, 5], [math.inf] * 5) is None


def test_lost_runs_stand_behind_all_others() -> None:
    found = fidelity([1, 2, 3, 4, 5, 6], [3.1, 3.2, 3.3, 3.4, math.inf, math.inf])
    same = fidelity([1, 2, 3, 4, 5, 6], [3.1, 3.2, 3.3, 3.4, 99.0, 99.0])
    assert found == same


@given(scores)
def test_only_the_order_counts(pairs: list[tuple[int, int]]) -> None:
    x, y = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    found = known(fidelity(x, y))
    assert fidelity([math.exp(a / 5) for a in x], y) == found
    assert spearman(y, x) == pytest.approx(found.spearman.value)
    assert kendall(y, x) == pytest.approx(found.kendall.value)
    assert kendall([-a for a in x], y) == pytest.approx(-found.kendall.value)
    for correlation in (found.spearman, found.kendall):
        assert -1 <= correlation.lo <= correlation.value <= correlation.hi <= 1


def test_the_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    true_tau, true_rho = 2 / math.pi * math.asin(0.7), 6 / math.pi * math.asin(0.35)
    covered = np.zeros(2)
    draws = 800
    for _ in range(draws):
        x = rng.normal(size=12)
        y = 0.7 * x + math.sqrt(1 - 0.49) * rng.normal(size=12)
        found = known(fidelity(x.tolist(), y.tolist()))
        covered += [
            found.spearman.lo <= true_rho <= found.spearman.hi,
            found.kendall.lo <= true_tau <= found.kendall.hi,
        ]
    assert 0.92 < covered[0] / draws < 0.99
    assert 0.92 < covered[1] / draws < 0.99


X = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0]
Y = [2.0, 7.0, 1.0, 8.0, 2.0, 8.0, 1.0, 8.0, 2.0, math.inf]


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
    alone, together = (known(interval(draws.spearman(X, Y), at_once)) for at_once in (1, 12))
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


DEGREES = st.floats(0.5, 1e7)


@pytest.mark.parametrize(
    ("dof", "expected"),
    [(1, 12.706205), (2, 4.302653), (10, 2.228139), (120, 1.979930), (10**9, 1.959964)],
)
def test_it_is_that_of_the_tables(dof: int, expected: float) -> None:
    assert student_t(0.975, dof) == pytest.approx(expected, abs=1e-6)


@given(dof=st.floats(0.6, 300), p=st.floats(0.6, 0.995))
def test_the_density_up_to_it_integrates_to_its_probability(dof: float, p: float) -> None:
    end = math.asinh(student_t(p, dof) / math.sqrt(dof))
    steps = 2000
    heights = [math.cosh(end * i / steps) ** -dof for i in range(steps + 1)]
    odd, even = sum(heights[1:-1:2]), sum(heights[2:-1:2])
    area = (heights[0] + 4 * odd + 2 * even + heights[-1]) * end / steps / 3
    log_scale = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2) - math.log(math.pi) / 2
    assert 0.5 + math.exp(log_scale) * area == pytest.approx(p, abs=1e-8)


@given(one=DEGREES, other=DEGREES)
def test_more_degrees_of_freedom_never_make_it_larger(one: float, other: float) -> None:
    few, many = sorted((one, other))
    assert student_t(0.975, few) >= student_t(0.975, many) - 1e-8
    assert student_t(0.975, many) > NormalDist().inv_cdf(0.975) - 1e-12
