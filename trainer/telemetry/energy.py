"""Compute joules between two moments from samples.

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
