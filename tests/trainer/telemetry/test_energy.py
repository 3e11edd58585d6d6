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
COUNTED = meter((10, 100, 7000), (12, 100, 7500), (14, 100, 7600))
RESET = meter((0, 100, 9000), (2, 100, 9200), (4, 300, 50), (6, 300, 650))
RESET_WITHOUT_POWER = meter((0, None, 9000), (2, None, 50), (4, None, 90))
STOPPED = meter((0, 100, 1000), (2, 100, 1250), (4, 100, None), (6, 200, None))
HOLED = meter((0, 100, None), (2, None, None), (4, 100, None), (6, 100, None))


@pytest.mark.parametrize(
    ("of", "since", "until", "joules"),
    [
        (POWER, 10, 16, 1500),  # trapezoids: (100 + 200) / 2 × 2 + (200 + 400) / 2 × 4
        (POWER, 11, 12, 175),  # 150 W at 11 s: (150 + 200) / 2 × 1
        (POWER, 13, 15, 600),  # 250 W to 350 W
        (POWER, 13, 13, 0),
        (POWER, 9, 12, 400),  # power holds a little beyond the samples
        (POWER, 17, 18, 400),
        (POWER, 5, 12, None),  # and no further
        (POWER, 12, 21, None),
        (POWER, 14, 12, None),
        (COUNTED, 10, 14, 600),  # the counter goes before power
        (COUNTED, 11, 13, 300),
        (RESET, 0, 6, 200 + 400 + 600),  # power bridges the step where it starts again
        (RESET_WITHOUT_POWER, 0, 4, None),
        (RESET_WITHOUT_POWER, 2, 4, 40),
        (STOPPED, 0, 6, 250 + 200 + 300),
        (HOLED, 4, 6, 200),
        (HOLED, 0, 6, None),  # a hole is not guessed
        (HOLED, 3, 6, None),
        (meter(), 0, 1, None),
        (meter((0, None, None), (2, None, None)), 0, 2, None),
    ],
)
def test_energy_is_the_sum_by_hand(
    of: EnergyMeter, since: float, until: float, joules: float | None
) -> None:
    assert of.wh(since, until) == (None if joules is None else pytest.approx(joules * J))


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
