"""Test the names of trials, and names that are not valid."""

from __future__ import annotations

import pytest

from autoresearch.layout import is_trial_id, nth_trial_id, trial_number


@pytest.mark.parametrize("number", [1, 12, 999_999, 1_000_000])
def test_a_trials_name_says_its_number(number: int) -> None:
    name = nth_trial_id(number)
    assert is_trial_id(name)
    assert trial_number(name) == number


@pytest.mark.parametrize(
    "name",
    ["", "t1", "t00001", "t000001 ", "t000001\n", "xt000001", "t000001/..", ".specs", "t٣٣٣٣٣٣"],
)
def test_what_is_no_trials_name(name: str) -> None:
    assert not is_trial_id(name)
