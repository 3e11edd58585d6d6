"""Define a sample of a device, and the interface of telemetry."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Protocol


class TelemetryLost(Exception):  # control flow: the sampler ends, the campaign continues
    """The device or its driver stopped answering and will not recover. The message is one
    clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A device's answers at one moment; None for values it does not report."""

    at: str
    """ISO 8601, UTC, to the millisecond."""
    monotonic_s: float
    """``time.monotonic()`` when power and the energy counter were read."""
    gpu_util_pct: float | None = None
    """Share of the driver's last window in which some kernel ran."""
    power_w: float | None = None
    """Power of the GPU (NVML's own scope), not of the whole machine at its plug."""
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """Reasons that limit the clocks, in words; empty if there are none."""
    mem_used_gib: float | None = None
    """Memory in use on the device; on unified memory, in the whole machine, which has one pool."""
    mem_total_gib: float | None = None
    energy_mj: int | None = None
    """Millijoules since the driver was loaded, from the hardware counter."""

    @property
    def blank(self) -> bool:
        """Whether nothing at all was answered."""
        return all(getattr(self, name) is None for name in MEASURED)


MEASURED = tuple(field.name for field in fields(Sample) if field.name not in {"at", "monotonic_s"})
"""The fields of a Sample that come from the device."""


class Telemetry(Protocol):
    """Interface that connects other ways of reading a device.

    Used by one thread at a time.
    """

    description: str
    """One clause: what is read and what is missing, or why nothing is read."""

    def sample(self) -> Sample:
        """Read the device now.

        :raises TelemetryLost: if no later call can succeed.
        """
        ...

    def close(self) -> None:
        """Release the driver. ``sample`` is not called again."""
        ...


class NoTelemetry:
    """Telemetry of machines where nothing can be read: every sample is blank."""

    def __init__(self, why: str) -> None:
        self.description = f"none: {why}"

    def sample(self) -> Sample:
        """Return a blank sample."""
        return Sample(at=utc_now(), monotonic_s=time.monotonic())

    def close(self) -> None:
        """Do nothing."""


def utc_now() -> str:
    """Return the time as ISO 8601, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
