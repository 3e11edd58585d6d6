"""Test null configs that are confirmed repeatedly."""

from statistics import fmean

import pytest

from bench import confirm_interim
from bench.judge_honesty import reported
from bench.judge_nights import Night, nights
from bench.judge_worlds import shared_seeds
from trajectory.rows import Rules


@pytest.mark.slow
def test_a_look_is_about_what_it_promises_and_later_ones_ask_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confirm_interim, "NULLS", 400)
    once, plain, product, ended, taken = (figure.value for figure in confirm_interim.run())
    assert 0.5 < once < 5  # 2.5 % on one side; a share of 400 has a standard error of 0.8
    assert once <= product < plain
    assert once <= taken < ended


def test_intervals_hold_the_mean_effect_of_the_seeds() -> None:
    ended = nights(
        Night, shared_seeds(), Rules(), 40, lambda night: night.evidence.iterations >= 12
    )
    judged = [reported(night) for night in ended]
    assert fmean(one.every for one in judged) >= 0.93
    assert fmean(one.every_difference for one in judged) >= 0.93
