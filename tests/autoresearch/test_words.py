"""Test how numbers, counts and names are put into words."""

import pytest

from autoresearch.layout import is_trial_id, nth_trial_id, trial_number
from autoresearch.words import did_you_mean, duration_text, json_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (0.0193, "19 ms"),
        (0.0996, "0.1 s"),
        (8.14, "8.1 s"),
        (9.96, "10 s"),
        (42.4, "42 s"),
        (250, "4 min"),
        (3599, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (3600 * 1234, "1,234 h 00 min"),
    ],
)
def test_a_duration_has_two_figures_that_matter(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_value_is_shown_short_and_in_ascii() -> None:
    assert json_text("größe") == '"gr\\u00f6\\u00dfe"'
    assert json_text(10**100) == "an integer of 333 bits"
    assert json_text("x" * 100, 10) == '"xxxxxx...'


def test_a_near_word_is_named_and_else_all() -> None:
    assert did_you_mean("lrr", ["lr", "d_model"]) == " (did you mean lr?)"
    assert did_you_mean("zzz", ["lr", "d_model"]) == " (choose from lr, d_model)"


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
