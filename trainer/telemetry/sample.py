"""Define a sample of a device, the interface of telemetry, and the file of samples.

``telemetry.csv`` has one line per sample, appended over all sessions of a campaign. ``elapsed_s``
counts from the start of a session, so a value not greater than the previous line's begins a new
one. An empty cell is a value that the device did not report. The file is for people and plots, and
is not fsynced: a power cut loses its last lines, and a torn one is removed on opening.
"""

from __future__ import annotations

import csv
import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import BinaryIO, Protocol

from autoresearch.words import timestamp


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

    def close(self) -> None:
        """Release the driver. ``sample`` is not called again."""


class NoTelemetry:
    """Telemetry of machines where nothing can be read: every sample is blank."""

    def __init__(self, why: str) -> None:
        self.description = f"none: {why}"

    def sample(self) -> Sample:
        """Return a blank sample."""
        return Sample(at=timestamp(), monotonic_s=time.monotonic())

    def close(self) -> None:
        """Do nothing."""


COLUMNS = ("at", "elapsed_s", *MEASURED)
_HEADER = ",".join(COLUMNS).encode() + b"\n"
_DECIMALS = {
    "gpu_util_pct": 0,
    "power_w": 3,
    "temperature_c": 0,
    "sm_clock_mhz": 0,
    "mem_clock_mhz": 0,
    "mem_used_gib": 3,
    "mem_total_gib": 3,
}


class TelemetryFile:
    """A telemetry.csv open for appending."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, and remove a torn last line.

        A file with other columns, from another version, is renamed to ``telemetry.1.csv``,
        ``telemetry.2.csv``, …

        :raises OSError: if it cannot be opened or repaired.
        """
        if path.is_file() and not _is_ours(path):
            path.rename(_free_name(path))
        # Unbuffered: one write per line, visible to readers at once.
        self._file: BinaryIO = path.open("ab", buffering=0)
        try:
            self._file.truncate(path.read_bytes().rfind(b"\n") + 1)
            if self._file.seek(0, 2) == 0:
                self._file.write(_HEADER)
        except OSError:
            self._file.close()
            raise
        self._path = path

    def read(self) -> Iterator[tuple[Sample, bool]]:
        """Yield each sample, and whether the previous one belongs to the same session.

        ``monotonic_s`` counts seconds from the session's start. Unreadable lines are skipped.

        :raises OSError: if it cannot be read.
        """
        previous_s: float | None = None
        with self._path.open(encoding="utf-8", errors="replace", newline="") as lines:
            for row in csv.DictReader(line for line in lines if "\0" not in line):
                try:
                    sample = _parsed(row)
                except (ValueError, TypeError):
                    continue
                continues = previous_s is not None and sample.monotonic_s > previous_s
                previous_s = sample.monotonic_s
                yield sample, continues

    def append(self, sample: Sample, elapsed_s: float) -> None:
        """Append a sample.

        :param elapsed_s: since the session's start.
        :raises OSError: if it cannot be written.
        """
        cells = [sample.at, f"{elapsed_s:.3f}", *(_cell(sample, name) for name in MEASURED)]
        line = ",".join(cells).encode() + b"\n"
        if self._file.write(line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close it."""
        self._file.close()


def _cell(sample: Sample, name: str) -> str:
    value = getattr(sample, name)
    if value is None:
        return ""
    if name == "throttle_reasons":
        return "|".join(value) or "none"
    return f"{value:.{_DECIMALS[name]}f}" if name in _DECIMALS else str(value)


def _parsed(row: dict[str, str]) -> Sample:
    reasons = row["throttle_reasons"]
    words = () if reasons == "none" else tuple(reasons.split("|"))
    return Sample(
        at=row["at"],
        monotonic_s=float(row["elapsed_s"]),
        throttle_reasons=words if reasons else None,
        energy_mj=int(row["energy_mj"]) if row["energy_mj"] else None,
        **{name: float(row[name]) if row[name] else None for name in _DECIMALS},
    )


def _is_ours(path: Path) -> bool:
    """Return whether it begins with our header, whole or torn."""
    with path.open("rb") as file:
        start = file.read(len(_HEADER))
    return _HEADER.startswith(start)


def _free_name(path: Path) -> Path:
    number = 1
    while (name := path.with_stem(f"{path.stem}.{number}")).exists():
        number += 1
    return name
