"""A lead grows, holds or shrinks: error rates of the verdict, and the detectable change."""

import numpy as np
import pytest

from funnel.ladder.lead import Lead, LeadPoint, fit_lead
from tests.support.present import known

FLOPS = np.geomspace(1e11, 1e13, 9)
LUCK = 0.004


def points(lead: float, per_tenfold: float, seed: int | None = None) -> list[LeadPoint]:
    rng = np.random.default_rng(seed)
    found = []
    for number, (flops, own) in enumerate(zip(FLOPS, [2] * 6 + [1] * 3, strict=True)):
        luck = 0.0 if seed is None else rng.normal(0, LUCK / np.sqrt(own))
        seen = lead + per_tenfold * np.log10(flops / FLOPS[-1]) + luck
        rung = 1 + number // 2
        found.append(
            LeadPoint(
                rung=rung, params=flops / 1e6, tokens=1e6, flops=flops, lead_bpb=seen, seeds=own
            )
        )
    return found


def fitted(lead: float, per_tenfold: float, seed: int | None = None) -> Lead:
    return known(fit_lead(points(lead, per_tenfold, seed)[::-1]))


def test_a_line_is_found_as_it_is() -> None:
    found = fitted(0.1, -0.02)
    assert found.at_largest_bpb == pytest.approx(0.1)
    assert found.per_tenfold_bpb == pytest.approx(-0.02)
    assert found.at(1e15)[1] == pytest.approx(0.1 - 0.04)
    assert found.dof == 7


def test_intervals_hold_what_they_say() -> None:
    slopes = ends = beyond = 0
    for seed in range(400):
        found = fitted(0.1, -0.02, seed)
        slopes += found.per_tenfold_low <= -0.02 <= found.per_tenfold_high
        ends += found.at_largest_low <= 0.1 <= found.at_largest_high
        low, _, high = found.at(1e15)
        beyond += low <= 0.06 <= high
    # Four standard errors of a proportion of 95% over 400 draws are 4.4%.
    for held in (slopes, ends, beyond):
        assert 0.906 < held / 400 < 0.994


@pytest.mark.parametrize(("per_tenfold", "trend"), [(0.03, "grows"), (-0.03, "shrinks")])
def test_a_plain_trend_is_reported(per_tenfold: float, trend: str) -> None:
    said = [fitted(0.1, per_tenfold, seed).trend for seed in range(50)]
    assert said.count(trend) >= 48


def test_a_lead_that_stays_is_seldom_said_to_move() -> None:
    said = [fitted(0.1, 0.0, seed).trend for seed in range(200)]
    # 5% of 200, plus four standard deviations
    assert said.count("grows") + said.count("shrinks") <= 22
    assert said.count("holds") > 100
    hidden = [fitted(0.01, 0.0, seed).trend for seed in range(50)]
    assert hidden.count("holds") < 5, "what noise hides is not called holding"
    assert hidden.count("unclear") > 35


def test_the_stated_power_is_had() -> None:
    visible = float(np.median([fitted(0.1, 0.0, seed).visible_bpb for seed in range(100)]))
    seen = [fitted(0.1, -visible, 1000 + seed).trend == "shrinks" for seed in range(200)]
    assert 0.68 < np.mean(seen) < 0.92


def test_a_lead_within_the_noise_does_not_stand() -> None:
    assert fitted(0.1, 0.0, 1).stands
    assert not fitted(0.0, 0.0, 1).stands
    assert fitted(-0.1, 0.0, 1).visible_share is None


def test_too_few_points_say_nothing() -> None:
    assert fit_lead(points(0.1, 0.0)[:3]) is None
    same = [point.model_copy(update={"flops": 1e12}) for point in points(0.1, 0.0)]
    assert fit_lead(same) is None
