"""Sum up samples: joules between two moments; means, peaks, energy and cost of a campaign.

Between two neighboring samples the energy is the difference of the hardware counter if both have
one, and otherwise the trapezoid of their powers, ``(P0 + P1) / 2 × Δt``. A counter that decreased
(the driver was reloaded, the GPU reset) says nothing about that step. It never wraps: 64 bits of
millijoules last for eons. A step with neither is a gap of unknown energy.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from autoresearch.values import Frozen, NonNegative, NonNegativeInt
from trainer.telemetry.sample import Sample, read_sessions

JOULES_PER_WH = 3600.0

Numbers: TypeAlias = NDArray[np.float64]


def _column(samples: Sequence[Sample], name: str) -> Numbers:
    """Return a field of every sample; NaN where there was no answer."""
    return np.array([getattr(sample, name) for sample in samples], dtype=float)


def _midpoints(values: Numbers) -> Numbers:
    """Return the mean of each two neighbors."""
    return (values[:-1] + values[1:]) / 2


def _counted_j(samples: Sequence[Sample]) -> Numbers:
    """Return the joules from each sample to the next by the counter; NaN where it says nothing."""
    joules = np.diff(_column(samples, "energy_mj")) / 1000
    return np.where(joules >= 0, joules, np.nan)


def _steps_j(samples: Sequence[Sample]) -> Numbers:
    """Return the joules from each sample to the next; NaN if neither method has both values."""
    by_power = _midpoints(_column(samples, "power_w")) * np.diff(_column(samples, "monotonic_s"))
    counted = _counted_j(samples)
    return np.where(np.isnan(counted), by_power, counted)


def watt_hours(
    samples: Sequence[Sample], since_s: float, until_s: float, *, reach_s: float
) -> float | None:
    """Return watt-hours from one ``time.monotonic()`` to another, within one session.

    An end between two samples takes its share of that step, linear in time.

    :param reach_s: how far beyond the first and last sample their power holds.
    :return: None if samples do not cover the interval.
    """
    if not samples:
        return None
    first, last = samples[0], samples[-1]
    reached = [
        replace(first, monotonic_s=first.monotonic_s - reach_s, energy_mj=None),
        *samples,
        replace(last, monotonic_s=last.monotonic_s + reach_s, energy_mj=None),
    ]
    at_s, steps_j = _column(reached, "monotonic_s"), _steps_j(reached)
    if not at_s[0] <= since_s <= until_s <= at_s[-1]:
        return None
    if np.isnan(steps_j[(at_s[1:] > since_s) & (at_s[:-1] < until_s)]).any():
        return None
    total_j = np.concatenate([[0], np.cumsum(np.nan_to_num(steps_j))])
    began_j, ended_j = np.interp([since_s, until_s], at_s, total_j)
    return float(ended_j - began_j) / JOULES_PER_WH


AVERAGED = (
    "gpu_util_pct",
    "power_w",
    "temperature_c",
    "sm_clock_mhz",
    "mem_clock_mhz",
    "mem_used_gib",
)
"""Fields of a Sample that have a mean and a peak."""


class MeanAndPeak(Frozen):
    """One quantity over time."""

    mean: float
    """Mean over time, not over samples."""
    peak: float


class DeviceUse(Frozen):
    """Use of the device in an interval; what it does not report is None and omitted from JSON."""

    gpu_util_pct: MeanAndPeak | None = Field(None, exclude_if=lambda value: value is None)
    power_w: MeanAndPeak | None = Field(None, exclude_if=lambda value: value is None)
    temperature_c: MeanAndPeak | None = Field(None, exclude_if=lambda value: value is None)


class TelemetrySummary(Frozen):
    """Summary of a campaign's samples, those of earlier sessions included."""

    samples: NonNegativeInt
    sampled_s: NonNegative
    """Sum over sessions of the time between first and last sample."""
    gpu_util_pct: MeanAndPeak | None
    power_w: MeanAndPeak | None
    temperature_c: MeanAndPeak | None
    sm_clock_mhz: MeanAndPeak | None
    mem_clock_mhz: MeanAndPeak | None
    mem_used_gib: MeanAndPeak | None
    mem_total_gib: NonNegative | None
    throttled: dict[str, float]
    """Share of the sampled time, 0 to 1, of each reason that limited the clocks, without idleness
    and clocks that a person set."""
    kwh: NonNegative | None
    """Energy of the GPU only; None if neither counter nor power was reported."""
    energy_source: str | None
    """``counter``, ``power`` (trapezoid of the samples) or ``counter and power``."""
    usd_per_kwh: NonNegative
    cost_usd: NonNegative | None
    """``kwh × usd_per_kwh``."""

    @property
    def formula(self) -> str | None:
        """The cost, as a formula that a person can check."""
        if self.kwh is None or self.cost_usd is None:
            return None
        return f"{self.kwh:.3f} kWh × ${self.usd_per_kwh:g}/kWh = ${self.cost_usd:.2f}"

    def lines(self) -> tuple[str, ...]:
        """Return the device's state and its energy for a person, one line each."""
        parts = [
            f"{label} {quantity.mean:.{digits}f} mean, {quantity.peak:.{digits}f} peak {unit}"
            for label, quantity, unit, digits in (
                ("utilisation", self.gpu_util_pct, "%", 0),
                ("power", self.power_w, "W", 1),
                ("temperature", self.temperature_c, "°C", 0),
                ("memory", self.mem_used_gib, "GiB", 1),
            )
            if quantity is not None
        ]
        parts += [f"{reason} {share:.0%} of the time" for reason, share in self.throttled.items()]
        state = (" · ".join(parts),) if parts else ()
        if self.formula is None:
            return state
        return (*state, f"energy (GPU, by {self.energy_source}) {self.formula}")


_HARMLESS = {"gpu_idle", "applications_clocks", "display_clocks"}
"""Throttle reasons of idleness, and of clocks that a person set."""


def summarize(sessions: Sequence[Sequence[Sample]], usd_per_kwh: float) -> TelemetrySummary:
    """Sum up the samples of at least one session; the time between two sessions does not count."""
    passed_s = np.concatenate([np.diff(_column(one, "monotonic_s")) for one in sessions])
    steps_j = np.concatenate([_steps_j(one) for one in sessions])
    counted = ~np.isnan(np.concatenate([_counted_j(one) for one in sessions]))
    known = ~np.isnan(steps_j)
    sources = {"counter": counted.any(), "power": (known & ~counted).any()}
    kwh = float(steps_j[known].sum()) / JOULES_PER_WH / 1000 if known.any() else None
    totals_gib = [one.mem_total_gib for samples in sessions for one in samples]
    return TelemetrySummary(
        samples=sum(map(len, sessions)),
        sampled_s=float(passed_s.sum()),
        mem_total_gib=next((gib for gib in reversed(totals_gib) if gib is not None), None),
        throttled=_throttled(sessions, passed_s),
        kwh=kwh,
        energy_source=" and ".join(name for name, used in sources.items() if used) or None,
        usd_per_kwh=usd_per_kwh,
        cost_usd=None if kwh is None else kwh * usd_per_kwh,
        **{name: _mean_and_peak(sessions, name, passed_s) for name in AVERAGED},
    )


def use_between(samples: Sequence[Sample], since_s: float, until_s: float) -> DeviceUse:
    """Return the use of the device from one ``time.monotonic()`` to another, within one session.

    An interval between two samples has those two.
    """
    at_s = [sample.monotonic_s for sample in samples]
    first, end = bisect_left(at_s, since_s), bisect_right(at_s, until_s)
    if first >= end:
        first, end = max(0, end - 1), first + 1
    inside = samples[first:end]
    if not inside:
        return DeviceUse()
    passed_s = np.diff(_column(inside, "monotonic_s"))
    return DeviceUse(
        **{name: _mean_and_peak([inside], name, passed_s) for name in DeviceUse.model_fields}
    )


def _mean_and_peak(
    sessions: Sequence[Sequence[Sample]], name: str, passed_s: Numbers
) -> MeanAndPeak | None:
    """Return the mean over time, by trapezoids, and the peak; None without a value."""
    columns = [_column(samples, name) for samples in sessions]
    values = np.concatenate(columns)
    values = values[~np.isnan(values)]
    if not values.size:
        return None
    midpoints = np.concatenate([_midpoints(column) for column in columns])
    known = ~np.isnan(midpoints)
    seconds = passed_s[known].sum()
    mean = (midpoints * passed_s)[known].sum() / seconds if seconds > 0 else values[0]
    return MeanAndPeak(mean=float(mean), peak=float(values.max()))


def _throttled(sessions: Sequence[Sequence[Sample]], passed_s: Numbers) -> dict[str, float]:
    """Return the share of each reason; the time up to a sample has the sample's reasons."""
    ends = [sample.throttle_reasons for samples in sessions for sample in samples[1:]]
    known_s = 0.0
    seconds: Counter[str] = Counter()
    for reasons, passed in zip(ends, passed_s.tolist(), strict=True):
        if reasons is not None:
            known_s += passed
            seconds.update(dict.fromkeys(reasons, passed))
    return {
        reason: of / known_s
        for reason, of in sorted(seconds.items())
        if of > 0 and reason not in _HARMLESS
    }


def device_text(directory: Path) -> str:
    """Return mean and peak of a campaign's device, as a clause; empty if it was not sampled."""
    sessions = read_sessions(directory)
    if not sessions:
        return ""
    found = summarize(sessions, 0.0)
    shown = (
        (found.gpu_util_pct, "utilization", " %"),
        (found.power_w, "power", " W"),
        (found.temperature_c, "temperature", " °C"),
    )
    parts = (
        f"{name} {one.mean:.0f}{unit} on average, {one.peak:.0f}{unit} at most"
        for one, name, unit in shown
        if one is not None
    )
    return "; ".join(parts)
