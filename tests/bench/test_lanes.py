"""The benchmark of lanes keeps what it measured, and measures what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.lanes import efficiency, search_cost
from bench.lanes.efficiency import Efficiency
from bench.lanes.store import Store


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    found = Efficiency(lanes=1, trials=2, slept_s=0.1, efficiency=0.9, gap_ms=50)
    assert Store(tmp_path / "kept").get(Efficiency, "one", lambda: found) == found

    def never() -> Efficiency:
        raise AssertionError("it is known")

    assert Store(tmp_path / "kept").get(Efficiency, "one", never) == found


@pytest.mark.slow
def test_two_lanes_sleep_at_once(tmp_path: Path) -> None:
    found = efficiency.measure(2, sleep_s=0.5, rounds=2)
    assert found.trials == 4
    assert 0.3 < found.efficiency < 1
    assert found.gap_ms > 0


@pytest.mark.slow
def test_a_night_on_four_lanes_has_as_many_iterations() -> None:
    found = search_cost.measure(4, 0, 10)
    assert found.runs > 10
    assert found.iterations == 10
