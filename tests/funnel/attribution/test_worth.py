"""Estimated worths agree with simulations whose true effects are known."""

from __future__ import annotations

import random

import pytest

from funnel.attribution.worth import Scatter, contrast, worths
from tests.support.attributions import names, simulated, worlds


def test_by_hand() -> None:
    scores = {
        "W": {0: 2.0, 1: 2.1},
        "B": {0: 2.5, 1: 2.6},
        "0": {0: 2.3, 1: 2.4},
        "1": {0: 2.1, 1: 2.2},
    }

    found = worths(scores, "W", "B", ["0", "1"])

    assert found.gain is not None
    assert found.remainder is not None
    assert found.gain.value == pytest.approx(0.5)
    assert [worth.value for worth in found.changes if worth] == pytest.approx([0.3, 0.1])
    assert found.remainder.value == pytest.approx(0.1)
    # The seeds explain everything that the configs do not, so no variance is left.
    assert found.gain.low == pytest.approx(0.5)


def test_the_scatter_is_what_configs_and_seeds_leave() -> None:
    scores = {"a": {0: 1.0, 1: 2.0}, "b": {0: 1.0, 1: 4.0}}

    scatter = Scatter.of(scores)

    # Two-way layout without interaction: each of the four residuals is a quarter of the
    # interaction, 2.
    assert scatter is not None
    assert (scatter.variance, scatter.dof) == pytest.approx((4 * 0.25, 1))
    assert Scatter.of({"a": {0: 1.0}, "b": {0: 2.0}}) is None


def test_a_gain_from_one_change_alone_is_given_to_that_one() -> None:
    """One of five changes carries the whole gain. It differs significantly from zero in nearly
    every run, and its interval covers the truth as often as promised. The other four are false
    positives no more often than their intervals allow."""
    rng = random.Random(11)
    runs = 300
    found_it = held = false = remainders = 0
    for _ in range(runs):
        truth = [0.0, 0.0, 0.12, 0.0, 0.0]
        found = worths(simulated(rng, truth, 0.0), "W", "B", names(5))
        for number, worth in enumerate(found.changes):
            assert worth is not None
            if number == 2:
                found_it += worth.helps
                assert worth.low is not None
                assert worth.high is not None
                held += worth.low <= truth[2] <= worth.high
            else:
                false += worth.helps or worth.harms
        assert found.remainder is not None
        remainders += found.remainder.helps or found.remainder.harms
    assert found_it >= 0.9 * runs
    assert held >= 0.92 * runs
    assert false <= 0.06 * 4 * runs
    assert remainders <= 0.08 * runs


def test_intervals_hold_where_changes_interact() -> None:
    rng = random.Random(5)
    told = held = whole = 0
    runs = 400
    for alone, together, scores in worlds(rng, runs):
        found = worths(scores, "W", "B", names(len(alone)))
        for worth, truth in zip(found.changes, alone, strict=True):
            assert worth is not None
            assert worth.low is not None
            assert worth.high is not None
            told += 1
            held += worth.low <= truth <= worth.high
        rest = found.remainder
        assert rest is not None
        assert rest.low is not None
        assert rest.high is not None
        whole += rest.low <= together <= rest.high
    assert 0.93 <= held / told <= 0.985
    assert 0.91 <= whole / runs <= 0.99


def test_two_changes_that_work_only_together_are_a_negative_remainder() -> None:
    """Without either change the other gains nothing, so each is worth the whole gain. Their sum
    counts it twice, and the remainder shows that."""
    rng = random.Random(3)
    seen = 0
    for _ in range(100):
        found = worths(simulated(rng, [0.15, 0.15], -0.15), "W", "B", names(2))
        assert found.remainder is not None
        seen += found.remainder.harms
    assert seen >= 80


def test_a_single_change_is_the_whole_gain() -> None:
    scores = simulated(random.Random(1), [0.1], 0.0)

    found = worths(scores, "W", "B", ["B"])

    assert found.changes == (found.gain,)
    assert found.remainder is not None
    assert (found.remainder.value, found.remainder.is_exact) == (0.0, True)


def test_what_does_nothing_is_told_so() -> None:
    scores = simulated(random.Random(1), [0.1, 0.0], 0.0)
    scores["1"] = dict(scores["W"])

    found = worths(scores, "W", "B", names(2))

    worth = found.changes[1]
    assert worth is not None
    assert worth.is_exact
    assert not worth.helps
    assert not worth.harms


def test_what_has_no_score_is_left_to_the_remainder() -> None:
    scores = simulated(random.Random(1), [0.1, 0.2], 0.0)
    scores["1"] = {}

    found = worths(scores, "W", "B", ["0", "1"])
    alone = worths(scores, "W", "B", ["0", None])

    assert found.changes[1] is None
    assert found.remainder == alone.remainder
    assert found.gain is not None
    assert found.changes[0] is not None
    assert found.remainder is not None
    left = found.gain.value - found.changes[0].value
    assert found.remainder.value == pytest.approx(left)


def test_one_seed_has_no_interval() -> None:
    scores = {"W": {0: 2.0}, "B": {0: 2.5}}

    found = contrast(scores, [("B", 1.0), ("W", -1.0)], Scatter.of(scores))

    assert found is not None
    assert (found.value, found.low, found.high, found.helps) == (0.5, None, None, False)
