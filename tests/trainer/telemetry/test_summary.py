"""Means, peaks, energy and money agree with calculations by hand."""

from __future__ import annotations

import pytest

from trainer.telemetry.sample import Sample
from trainer.telemetry.summary import MeanAndPeak, Tally


def sample(at_s: float, **answers: object) -> Sample:
    return Sample(at="", monotonic_s=at_s, **answers)  # type: ignore[arg-type]


def test_means_are_over_time_not_over_samples() -> None:
    tally = Tally()
    for at_s, power_w in ((0, 100), (8, 100), (8.1, 100), (8.2, 100), (10.2, 300)):
        tally.add(sample(at_s, power_w=power_w))
    power = tally.summary(0.13).power_w
    assert power is not None
    assert power.mean == pytest.approx((8.2 * 100 + 2 * 200) / 10.2)
    assert power.peak == 300


def test_sessions_add_up_and_the_time_between_them_does_not() -> None:
    tally = Tally()
    tally.add(sample(0, power_w=3600, energy_mj=9_000_000), continues=False)
    tally.add(sample(10, power_w=3600, energy_mj=9_040_000))
    tally.add(sample(0, power_w=1800, energy_mj=5), continues=False)
    tally.add(sample(30, power_w=1800))
    summary = tally.summary(0.2)
    assert summary.samples == 4
    assert summary.sampled_s == 40
    assert summary.kwh == pytest.approx((40 + 54_000) / 3.6e6)
    assert summary.energy_source == "counter and power"
    assert summary.power_w is not None
    assert summary.power_w.mean == pytest.approx((10 * 3600 + 30 * 1800) / 40)
    assert summary.power_w.peak == 3600


def test_the_cost_shows_its_formula() -> None:
    tally = Tally()
    tally.add(sample(0, power_w=54.0), continues=False)
    tally.add(sample(73.4 * 60, power_w=54.0))
    summary = tally.summary(0.13)
    assert summary.kwh == pytest.approx(0.06606)
    assert summary.cost_usd == pytest.approx(0.0085878)
    assert summary.formula == "0.066 kWh × $0.13/kWh = $0.01"
    assert summary.lines() == (
        "power 54.0 mean, 54.0 peak W",
        "energy (GPU, by power) 0.066 kWh × $0.13/kWh = $0.01",
    )


def test_throttling_is_a_share_of_the_time_and_idleness_is_none() -> None:
    tally = Tally()
    tally.add(sample(0, throttle_reasons=()), continues=False)
    tally.add(sample(6, throttle_reasons=("gpu_idle",)))
    tally.add(sample(8, throttle_reasons=("sw_power_cap", "hw_thermal_slowdown")))
    assert tally.summary(0).throttled == {
        "hw_thermal_slowdown": pytest.approx(0.25),
        "sw_power_cap": pytest.approx(0.25),
    }


def test_one_sample_is_its_own_mean_and_no_energy() -> None:
    tally = Tally()
    tally.add(sample(5, power_w=80.0, gpu_util_pct=50.0, mem_used_gib=3.0, mem_total_gib=120.0))
    summary = tally.summary(0.13)
    assert summary.power_w == MeanAndPeak(mean=80, peak=80)
    assert (summary.mem_total_gib, summary.kwh, summary.cost_usd) == (120, None, None)
    assert summary.lines() == (
        "utilisation 50 mean, 50 peak % · power 80.0 mean, 80.0 peak W · "
        "memory 3.0 mean, 3.0 peak GiB",
    )
