"""Reader of a campaign's telemetry.csv while it grows."""

import csv
from collections import deque
from contextlib import suppress
from pathlib import Path

from autoresearch.values import Frozen

SHOWN_SAMPLES = 1800
"""An hour at one sample every two seconds."""
_TAIL_BYTES = 256 << 10


class DeviceSample(Frozen):
    """The device's readings at one moment; None for a reading that it did not give."""

    at: str
    """Time in ISO 8601, UTC."""
    gpu_util_pct: float | None
    power_w: float | None
    temperature_c: float | None
    mem_used_gib: float | None
    throttle_reasons: str
    """NVML's names, joined by a bar."""


_NUMBERS = ("gpu_util_pct", "power_w", "temperature_c", "mem_used_gib")


class DeviceTail:
    """The latest samples of one telemetry.csv."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns: list[str] = []
        self._read_bytes = 0
        self.samples: deque[DeviceSample] = deque(maxlen=SHOWN_SAMPLES)

    def poll(self) -> None:
        """Read the complete lines that were appended; of a long file, only about the last hour."""
        try:
            size = self._path.stat().st_size
            if size < self._read_bytes:
                self._read_bytes = 0
                self.samples.clear()
            if size == self._read_bytes:
                return
            with self._path.open("rb") as file:
                if self._read_bytes == 0:
                    header = file.readline()
                    self._columns = header.decode("utf-8", "replace").strip().split(",")
                    self._read_bytes = max(len(header), size - _TAIL_BYTES)
                file.seek(self._read_bytes)
                new = file.read()
        except OSError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for cells in csv.reader(whole.decode("utf-8", "replace").splitlines()):
            row = dict(zip(self._columns, cells, strict=False))
            # A line may be partial, such as the first of the tail.
            with suppress(KeyError, ValueError):
                numbers = {name: float(row[name]) if row[name] else None for name in _NUMBERS}
                reasons = row["throttle_reasons"]
                sample = DeviceSample(at=row["at"], throttle_reasons=reasons, **numbers)
                self.samples.append(sample)
