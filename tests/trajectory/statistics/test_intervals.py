"""Student's quantile agrees with tables, with its own density and with independent computations."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory.statistics.intervals import student_t

DEGREES = st.floats(0.5, 1e7)


@pytest.mark.parametrize(
    ("dof", "expected"),
    [
        (1, 12.706205),
        (2, 4.302653),
        (10, 2.228139),
        (120, 1.979930),
        (10**9, 1.959964),
    ],
)
def test_it_is_that_of_the_tables(dof: int, expected: float) -> None:
    assert student_t(0.975, dof) == pytest.approx(expected, abs=1e-6)


@given(p=st.floats(0.51, 0.999))
def test_one_and_two_degrees_have_closed_forms(p: float) -> None:
    assert student_t(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-9)
    two = (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    assert student_t(p, 2) == pytest.approx(two, rel=1e-9)


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
