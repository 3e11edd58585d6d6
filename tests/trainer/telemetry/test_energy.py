"""Energy agrees with sums by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.telemetry.sample import Sample
from trainer.telemetry.summary import EnergyMeter

J = 1 / 3600
"""One joule in watt-hours."""


def meter(*samples: tuple[float, float | None, float | None], reach_s: float = 4) -> EnergyMeter:
    """Return a meter with samples of (time in s, power in W, counter in J)."""
    made = EnergyMeter(reach_s)
    for at_s, power_w, counter_j in samples:
        counter_mj = None if counter_j is None else round(counter_j * 1000)
        made.add(Sample(at="", monotonic_s=at_s, power_w=power_w, energy_mj=counter_mj))
    return made


POWER = meter((10, 100, None), (12, 200, None), (16, 400, None))


@pytest.mark.parametrize(
    ("since", "until", "joules"),
    [
        (10, 12, 300),  # (100 + 200) / 2 × 2
        (10, 16, 1500),  # 300 + (200 + 400) / 2 × 4
        (11, 12, 175),  # 150 W at 11 s: (150 + 200) / 2 × 1
        (13, 15, 600),  # 250 W to 350 W
        (11, 14, 675),  # 175 + (200 + 300) / 2 × 2
        (13, 13, 0),
    ],
)
def test_power_is_integrated_by_trapezoids_interpolated_at_the_ends(
    since: float, until: float, joules: float
) -> None:
    assert POWER.wh(since, until) == pytest.approx(joules * J)


def test_the_counter_is_believed_before_power() -> None:
    counted = meter((10, 100, 7000), (12, 100, 7500), (14, 100, 7600))
    assert counted.wh(10, 14) == pytest.approx(600 * J)
    assert counted.wh(11, 12) == pytest.approx(250 * J)
    assert counted.wh(11, 13) == pytest.approx(300 * J)


def test_the_counter_needs_no_power() -> None:
    assert meter((10, None, 7000), (12, None, 7500)).wh(10, 12) == pytest.approx(500 * J)


def test_where_the_counter_starts_again_power_bridges_the_step() -> None:
    reset = meter((0, 100, 9000), (2, 100, 9200), (4, 300, 50), (6, 300, 650))
    assert reset.wh(0, 6) == pytest.approx((200 + 400 + 600) * J)
    without_power = meter((0, None, 9000), (2, None, 50), (4, None, 90))
    assert without_power.wh(0, 4) is None
    assert without_power.wh(2, 4) == pytest.approx(40 * J)


def test_where_the_counter_stops_answering_power_goes_on() -> None:
    half = meter((0, 100, 1000), (2, 100, 1250), (4, 100, None), (6, 200, None))
    assert half.wh(0, 6) == pytest.approx((250 + 200 + 300) * J)


def test_a_hole_in_the_samples_is_not_guessed() -> None:
    holed = meter((0, 100, None), (2, None, None), (4, 100, None), (6, 100, None))
    assert holed.wh(4, 6) == pytest.approx(200 * J)
    assert holed.wh(0, 6) is None
    assert holed.wh(3, 6) is None


def test_power_holds_a_little_beyond_the_samples_and_no_further() -> None:
    assert POWER.wh(9, 12) == pytest.approx((100 + 300) * J)
    assert POWER.wh(12, 18) == pytest.approx((1200 + 800) * J)
    assert POWER.wh(17, 18) == pytest.approx(400 * J)
    assert POWER.wh(5, 12) is None
    assert POWER.wh(12, 21) is None


def test_nothing_is_known_without_samples_or_backwards() -> None:
    assert meter().wh(0, 1) is None
    assert meter((0, None, None), (2, None, None)).wh(0, 2) is None
    assert POWER.wh(14, 12) is None


readings = st.lists(
    st.tuples(
        st.floats(0.1, 5),
        st.floats(0, 1000),
        st.none() | st.floats(0, 1e6),
    ),
    min_size=2,
    max_size=12,
)


@given(readings, st.floats(0, 1), st.floats(0, 1))
def test_parts_of_an_interval_add_up(
    steps: list[tuple[float, float, float | None]], one: float, other: float
) -> None:
    at_s = 0.0
    samples = []
    for length_s, power_w, counter_j in steps:
        at_s += length_s
        samples.append((at_s, power_w, counter_j))
    made = meter(*samples)
    begin, end = samples[0][0], samples[-1][0]
    first, second = sorted((begin + one * (end - begin), begin + other * (end - begin)))
    parts = [made.wh(*ends) for ends in ((begin, first), (first, second), (second, end))]
    whole = made.wh(begin, end)
    assert whole is not None
    assert sum(part for part in parts if part is not None) == pytest.approx(whole, abs=1e-6)
    assert all(part is not None and part >= 0 for part in parts)
