"""Test null configs that are confirmed repeatedly."""

from __future__ import annotations

import pytest

from bench import confirm_interim


@pytest.mark.slow
def test_a_look_is_about_what_it_promises_and_later_ones_ask_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confirm_interim, "NULLS", 400)
    once, plain, product, ended, taken = (figure.value for figure in confirm_interim.run())
    assert 0.5 < once < 5  # 2.5 % on one side; a share of 400 has a standard error of 0.8
    assert once <= product < plain
    assert once <= taken < ended
