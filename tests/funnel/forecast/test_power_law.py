from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from funnel.forecast.power_law import fit_power_laws

T = np.geomspace(1e4, 1e6, 40)
EVEN = np.ones_like(T)


@given(
    floor=st.floats(0, 4),
    amplitude=st.floats(0.5, 10),
    exponent=st.floats(0.05, 1.5),
    unit=st.floats(1e-3, 1e6),
)
@example(floor=0.0, amplitude=1.0, exponent=1.49609375, unit=1.0)
@example(floor=0.0, amplitude=1.0, exponent=1.4609375, unit=1.0)
def test_a_law_without_noise_is_found_in_any_unit(
    floor: float, amplitude: float, exponent: float, unit: float
) -> None:
    loss = floor + amplitude * (T / T[0]) ** -exponent
    laws = fit_power_laws(T * unit, loss[None, :], EVEN)
    assert np.abs(laws.at(T * unit)[0] - loss).max() < 1e-4 * loss[0]
    assert laws.exponents[0] == pytest.approx(exponent, rel=1e-3)


@given(st.lists(st.floats(0.01, 100), min_size=5, max_size=40))
def test_neither_floor_nor_amplitude_is_ever_negative(losses: list[float]) -> None:
    t = np.geomspace(1, 100, len(losses))
    laws = fit_power_laws(t, np.array([losses]), np.ones_like(t))
    assert laws.floors[0] >= 0
    assert laws.amplitudes[0] >= 0
    assert np.isfinite(laws.at(t)).all()


def test_every_row_is_fitted_as_if_alone() -> None:
    rng = np.random.default_rng(0)
    losses = 2 + 3 * (T / T[0]) ** -0.4 + rng.normal(0, 0.05, (5, len(T)))
    together = fit_power_laws(T, losses, EVEN).at(T)
    for row, loss in enumerate(losses):
        assert np.allclose(together[row], fit_power_laws(T, loss[None, :], EVEN).at(T)[0])


def test_a_point_without_weight_does_not_count() -> None:
    loss = 2 + 3 * (T / T[0]) ** -0.4
    spoiled = loss.copy()
    spoiled[7] = 50.0
    weights = EVEN.copy()
    weights[7] = 1e-12
    assert np.allclose(fit_power_laws(T, spoiled[None, :], weights).at(T)[0], loss, rtol=2e-3)
