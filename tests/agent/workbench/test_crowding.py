"""Check that concurrent trials that may exceed the machine's memory are reported before they
start."""

from __future__ import annotations

import pytest

from agent.workbench.greeting import crowding


@pytest.mark.parametrize(("lanes", "trial_gib"), [(1, 100.0), (4, None), (4, 6.0)])
def test_what_fits_is_not_spoken_of(lanes: int, trial_gib: float | None) -> None:
    assert crowding(lanes, trial_gib, total_gib=28.0, reserve_gib=4.0) == ""


def test_what_does_not_fit_names_what_would() -> None:
    said = crowding(4, 8.0, total_gib=28.0, reserve_gib=4.0)
    assert "4 trials of 8 GiB and a reserve of 4 GiB are more than the 28.0 GiB here" in said
    assert "--trial-memory-gib 6.0 or less" in said
    assert crowding(4, 6.0, total_gib=28.0, reserve_gib=4.0) == ""
    crowding(4, 8.0, total_gib=3.0, reserve_gib=4.0)
