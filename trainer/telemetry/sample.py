"""Define a sample of a device, the interface of telemetry, and the file of samples.

``telemetry.csv`` has one line per sample, appended over all sessions of a campaign. ``elapsed_s``
counts from the start of a session, so a value not greater than the previous line's begins a new
one. An empty cell is a value that the device did not report. The file is for people and plots, and
is not fsynced: a power cut loses its last lines, and a torn one is removed on opening.
"""

import csv
import io
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

from autoresearch.campaign_files import open_file, read_file, rename, replace_file
from autoresearch.files import write_all
from autoresearch.layout import TELEMETRY_FILE
from autoresearch.words import timestamp

MOST_BYTES = 1 << 30
"""Largest telemetry.csv that is continued: a year of samples has less."""


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


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory in use on a device at one moment."""

    used_gib: float | None
    """On the whole device, by anyone; None if unknown, or if it is the machine's memory."""
    by_process_gib: Mapping[int, float]
    """By the process's number, of those that the driver names. In a container it names none, or
    numbers them as the machine outside does."""


class Telemetry(Protocol):
    """Interface that connects other ways of reading a device.

    Used by one thread at a time.
    """

    description: str
    """One clause: what is read and what is missing, or why nothing is read."""

    def sample(self) -> Sample:
        """Read the device now. A blank sample is the last one: the device answers nothing, or its
        driver died."""

    def memory(self) -> DeviceMemory | None:
        """Read the memory in use now; None if the device does not answer."""

    def close(self) -> None:
        """Release the driver. No other method is called again."""


class NoTelemetry:
    """Telemetry of machines where nothing can be read: every sample is blank."""

    def __init__(self, why: str) -> None:
        self.description = f"none: {why}"

    def sample(self) -> Sample:
        """Return a blank sample."""
        return Sample(at=timestamp(), monotonic_s=time.monotonic())

    def memory(self) -> None:
        """Return None."""

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
    """A campaign's telemetry.csv, which samples are appended to."""

    def __init__(self, path: Path) -> None:
        """Create the file, or read the earlier sessions' samples and remove a torn last line.

        A file with other columns, from another version, is renamed to ``telemetry.old.csv``.

        :raises OSError: if it cannot be read or repaired.
        """
        self._path = path
        content = b""
        with suppress(FileNotFoundError):
            content = read_file(path.parent, path.name, MOST_BYTES)
        whole = content[: content.rfind(b"\n") + 1]
        if whole and not whole.startswith(_HEADER):
            rename(path.parent, path.name, f"{path.stem}.old{path.suffix}")
            whole = b""
        if not whole:
            replace_file(path.parent, path.name, _HEADER)
        elif len(whole) < len(content):
            with self._opened() as file:
                file.truncate(len(whole))
        self.sessions = _sessions(whole.decode("utf-8", "replace"))
        """Samples of each earlier session; ``monotonic_s`` counts from its start."""

    def append(self, sample: Sample, elapsed_s: float) -> None:
        """Append a sample.

        :param elapsed_s: since the session's start.
        :raises OSError: if it cannot be written.
        """
        cells = [sample.at, f"{elapsed_s:.3f}"]
        for name in MEASURED:
            value = getattr(sample, name)
            if value is None:
                cells.append("")
            elif name == "throttle_reasons":
                cells.append("|".join(value) or "none")
            else:
                cells.append(f"{value:.{_DECIMALS[name]}f}" if name in _DECIMALS else str(value))
        with self._opened() as file:
            write_all(file.fileno(), ",".join(cells).encode() + b"\n")

    def _opened(self) -> io.FileIO:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        return io.FileIO(open_file(self._path.parent, self._path.name, flags), "wb")


_LONGEST = 10_000
"""Characters of a line beyond which no loop wrote it."""


def read_sessions(directory: Path) -> list[list[Sample]]:
    """Return the samples of a campaign's telemetry.csv by session; empty if it has none."""
    with suppress(OSError):
        content = read_file(directory, TELEMETRY_FILE, MOST_BYTES)
        return _sessions(content.decode("utf-8", "replace"))
    return []


def _sessions(text: str) -> list[list[Sample]]:
    """Return the samples by session, without unreadable lines."""
    sessions: list[list[Sample]] = []
    last_s = math.inf
    # No line of ours is long or has quotes; a reader that knows quotes may join many lines.
    lines = (line for line in text.splitlines() if "\0" not in line and len(line) < _LONGEST)
    for row in csv.DictReader(lines, quoting=csv.QUOTE_NONE):
        if None in row.values() or None in row:
            continue  # a line that a power cut left too short, or two in one
        with suppress(ValueError):
            reasons = row["throttle_reasons"]
            words = () if reasons == "none" else tuple(reasons.split("|"))
            sample = Sample(
                at=row["at"],
                monotonic_s=float(row["elapsed_s"]),
                throttle_reasons=words if reasons else None,
                energy_mj=int(row["energy_mj"]) if row["energy_mj"] else None,
                **{name: float(row[name]) if row[name] else None for name in _DECIMALS},
            )
            if not math.isfinite(sample.monotonic_s):
                continue
            if sample.monotonic_s <= last_s:
                sessions.append([])
            sessions[-1].append(sample)
            last_s = sample.monotonic_s
    return sessions
