"""Estimated worths agree with simulations whose true effects are known."""

from __future__ import annotations

import random

import pytest

from funnel.attribution.worth import Estimate, Scatter, contrast, worths
from tests.support.attributions import names, simulated, worlds
from tests.support.present import known


def test_by_hand() -> None:
    scores = {
        "W": {0: 2.0, 1: 2.1},
        "B": {0: 2.5, 1: 2.6},
        "0": {0: 2.3, 1: 2.4},
        "1": {0: 2.1, 1: 2.2},
    }
    found = worths(scores, "W", "B", ["0", "1"])
    assert [worth.value for worth in found.changes if worth] == pytest.approx([0.3, 0.1])
    assert known(found.remainder).value == pytest.approx(0.1)
    gain = known(found.gain)
    # The seeds explain everything that the configs do not, so no variance is left.
    assert (gain.value, gain.low) == pytest.approx((0.5, 0.5))


def test_the_scatter_is_what_configs_and_seeds_leave() -> None:
    scores = {"a": {0: 1.0, 1: 2.0}, "b": {0: 1.0, 1: 4.0}}
    scatter = Scatter.of(scores)
    # Two-way layout without interaction: each of the four residuals is a quarter of the
    # interaction, 2.
    assert scatter is not None
    assert (scatter.variance, scatter.dof) == pytest.approx((4 * 0.25, 1))
    assert Scatter.of({"a": {0: 1.0}, "b": {0: 2.0}}) is None


def holds(estimate: Estimate | None, truth: float) -> bool:
    found = known(estimate)
    return known(found.low) <= truth <= known(found.high)


def test_a_gain_from_one_change_alone_is_given_to_that_one() -> None:
    """One of five changes carries the whole gain. The others are false positives no more often
    than their intervals allow."""
    rng = random.Random(11)
    runs = 300
    found_it = held = false = remainders = 0
    for _ in range(runs):
        found = worths(simulated(rng, [0.0, 0.0, 0.12, 0.0, 0.0], 0.0), "W", "B", names(5))
        each = [known(worth) for worth in found.changes]
        found_it += each[2].helps
        held += holds(each.pop(2), 0.12)
        false += sum(worth.helps or worth.harms for worth in each)
        remainders += known(found.remainder).helps or known(found.remainder).harms
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
        told += len(alone)
        held += sum(map(holds, found.changes, alone))
        whole += holds(found.remainder, together)
    assert 0.93 <= held / told <= 0.985
    assert 0.91 <= whole / runs <= 0.99


def test_two_changes_that_work_only_together_are_a_negative_remainder() -> None:
    rng = random.Random(3)
    drawn = (worths(simulated(rng, [0.15, 0.15], -0.15), "W", "B", names(2)) for _ in range(100))
    assert sum(known(found.remainder).harms for found in drawn) >= 80


def test_a_single_change_is_the_whole_gain() -> None:
    found = worths(simulated(random.Random(1), [0.1], 0.0), "W", "B", ["B"])
    assert found.changes == (found.gain,)
    rest = known(found.remainder)
    assert (rest.value, rest.is_exact) == (0.0, True)


def test_what_does_nothing_is_told_so() -> None:
    scores = simulated(random.Random(1), [0.1, 0.0], 0.0)
    scores["1"] = dict(scores["W"])
    worth = known(worths(scores, "W", "B", names(2)).changes[1])
    assert (worth.is_exact, worth.helps, worth.harms) == (True, False, False)


def test_what_has_no_score_is_left_to_the_remainder() -> None:
    scores = simulated(random.Random(1), [0.1, 0.2], 0.0)
    scores["1"] = {}
    found = worths(scores, "W", "B", ["0", "1"])
    alone = worths(scores, "W", "B", ["0", None])
    assert found.changes[1] is None
    assert found.remainder == alone.remainder
    left = known(found.gain).value - known(found.changes[0]).value
    assert known(found.remainder).value == pytest.approx(left)


def test_one_seed_has_no_interval() -> None:
    scores = {"W": {0: 2.0}, "B": {0: 2.5}}
    found = known(contrast(scores, [("B", 1.0), ("W", -1.0)], Scatter.of(scores)))
    assert (found.value, found.low, found.high, found.helps) == (0.5, None, None, False)
