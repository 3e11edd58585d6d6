"""Sum up samples: joules between two moments; means, peaks, energy and cost of a campaign.

Between two neighboring samples the energy is the difference of the hardware counter if both have
one, and otherwise the trapezoid of their powers, ``(P0 + P1) / 2 × Δt``. A counter that decreased
(the driver was reloaded, the GPU reset) says nothing about that step. It never wraps: 64 bits of
millijoules last for eons.
"""

from __future__ import annotations

import bisect
import math
from array import array
from typing import Literal, NamedTuple

from autoresearch.values import Frozen, NonNegative, NonNegativeInt
from trainer.telemetry.sample import Sample

JOULES_PER_WH = 3600.0

Source = Literal["counter", "power"]


class Step(NamedTuple):
    """Energy from one sample to the next."""

    joules: float
    source: Source


def step(before: Sample, after: Sample) -> Step | None:
    """Return the energy between two samples; None if neither method has both values."""
    if (
        before.energy_mj is not None
        and after.energy_mj is not None
        and after.energy_mj >= before.energy_mj
    ):
        return Step((after.energy_mj - before.energy_mj) / 1000, "counter")
    if before.power_w is not None and after.power_w is not None:
        passed_s = after.monotonic_s - before.monotonic_s
        return Step((before.power_w + after.power_w) / 2 * passed_s, "power")
    return None


class EnergyMeter:
    """Energy of any interval within one run of samples. It keeps four numbers per sample: a night
    of samples every two seconds is under a megabyte."""

    def __init__(self, reach_s: float) -> None:
        """Start empty.

        :param reach_s: how far beyond the first and last sample their power may be extrapolated.
        """
        self._reach_s = reach_s
        self._last: Sample | None = None
        self._at_s = array("d")
        self._power_w = array("d")
        self._joules = array("d")
        """Joules from the first sample up to each."""
        self._island = array("L")
        """Samples with the same number have known energies between them."""
        self._by_counter = bytearray()
        """Whether the step that ends at each sample is from the counter."""

    def add(self, sample: Sample) -> None:
        """Add a sample, later than the last."""
        taken = None if self._last is None else step(self._last, sample)
        broken = self._last is not None and taken is None
        self._island.append((self._island[-1] if self._island else 0) + broken)
        so_far = self._joules[-1] if self._joules else 0.0
        self._joules.append(so_far + (taken.joules if taken else 0.0))
        self._by_counter.append(taken is not None and taken.source == "counter")
        self._at_s.append(sample.monotonic_s)
        self._power_w.append(math.nan if sample.power_w is None else sample.power_w)
        self._last = sample

    def wh(self, since_s: float, until_s: float) -> float | None:
        """Return watt-hours from one ``time.monotonic()`` to another.

        An end between two samples takes its part of that step: linear in time if the step is from
        the counter, and by interpolated power if it is a trapezoid.

        :return: None if samples do not cover the interval.
        """
        began, ended = self._until(since_s), self._until(until_s)
        if began is None or ended is None or began[0] != ended[0] or until_s < since_s:
            return None
        return max(0.0, ended[1] - began[1]) / JOULES_PER_WH

    def _until(self, at_s: float) -> tuple[int, float] | None:
        """Return the island that contains ``at_s``, and the joules up to then."""
        after = bisect.bisect_left(self._at_s, at_s)
        if after == len(self._at_s) or (after == 0 and self._at_s[0] != at_s):
            return self._beyond(max(0, after - 1), at_s)
        if self._at_s[after] == at_s:
            return self._island[after], self._joules[after]
        before = after - 1
        if self._island[before] != self._island[after]:
            return None
        length_s = self._at_s[after] - self._at_s[before]
        into_s = at_s - self._at_s[before]
        if self._by_counter[after]:
            part = (self._joules[after] - self._joules[before]) * into_s / length_s
        else:
            rise_w = self._power_w[after] - self._power_w[before]
            part = (self._power_w[before] + rise_w * into_s / length_s / 2) * into_s
        return self._island[before], self._joules[before] + part

    def _beyond(self, nearest: int, at_s: float) -> tuple[int, float] | None:
        """Return the same outside the samples, where the nearest power holds for a while."""
        if not self._at_s:
            return None
        outside_s = at_s - self._at_s[nearest]
        joules = self._joules[nearest] + self._power_w[nearest] * outside_s
        if abs(outside_s) > self._reach_s or math.isnan(joules):
            return None
        return self._island[nearest], joules


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


class Tally:
    """Adds samples up as they come."""

    def __init__(self) -> None:
        self._samples = 0
        self._sampled_s = 0.0
        self._quantities = {name: _RunningMeanAndPeak() for name in AVERAGED}
        self._throttled_s: dict[str, float] = {}
        self._throttle_known_s = 0.0
        self._mem_total_gib: float | None = None
        self._joules: float | None = None
        self._sources: set[Source] = set()
        self._last: Sample | None = None

    def add(self, sample: Sample, *, continues: bool = True) -> None:
        """Add a sample.

        :param continues: false for the first sample of a session, before which there was no
            sampling.
        """
        before = self._last if continues else None
        passed_s = 0.0 if before is None else sample.monotonic_s - before.monotonic_s
        self._samples += 1
        self._sampled_s += passed_s
        for name, quantity in self._quantities.items():
            earlier = None if before is None else getattr(before, name)
            quantity.add(earlier, getattr(sample, name), passed_s)
        if sample.throttle_reasons is not None:
            self._throttle_known_s += passed_s
            for reason in sample.throttle_reasons:
                self._throttled_s[reason] = self._throttled_s.get(reason, 0.0) + passed_s
        if sample.mem_total_gib is not None:
            self._mem_total_gib = sample.mem_total_gib
        taken = None if before is None else step(before, sample)
        if taken is not None:
            self._joules = (self._joules or 0.0) + taken.joules
            self._sources.add(taken.source)
        self._last = sample

    def summary(self, usd_per_kwh: float) -> TelemetrySummary:
        """Return the summary so far."""
        kwh = None if self._joules is None else self._joules / JOULES_PER_WH / 1000
        return TelemetrySummary(
            samples=self._samples,
            sampled_s=self._sampled_s,
            mem_total_gib=self._mem_total_gib,
            throttled={
                reason: seconds / self._throttle_known_s
                for reason, seconds in sorted(self._throttled_s.items())
                if seconds > 0 and reason not in _HARMLESS
            },
            kwh=kwh,
            energy_source=" and ".join(sorted(self._sources)) or None,
            usd_per_kwh=usd_per_kwh,
            cost_usd=None if kwh is None else kwh * usd_per_kwh,
            **{name: quantity.value() for name, quantity in self._quantities.items()},
        )


class _RunningMeanAndPeak:
    """The mean over time, by trapezoids, and the peak."""

    def __init__(self) -> None:
        self._area = 0.0
        self._seconds = 0.0
        self._first: float | None = None
        self._peak: float | None = None

    def add(self, before: float | None, value: float | None, passed_s: float) -> None:
        if value is None:
            return
        if self._first is None:
            self._first = value
        self._peak = value if self._peak is None else max(self._peak, value)
        if before is not None:
            self._area += (before + value) / 2 * passed_s
            self._seconds += passed_s

    def value(self) -> MeanAndPeak | None:
        if self._first is None or self._peak is None:
            return None
        mean = self._area / self._seconds if self._seconds > 0 else self._first
        return MeanAndPeak(mean=mean, peak=self._peak)
