"""Watch a device's memory during a trial, and find the part that its processes hold."""

import threading
from collections.abc import Collection

import psutil

from trainer.telemetry.sample import DeviceMemory


class MemoryWatch:
    """All that was seen of a device's memory during one trial. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: list[DeviceMemory] = []

    def add(self, memory: DeviceMemory) -> None:
        """Add what the device holds now; the first is what it held before the trial."""
        with self._lock:
            # A framework keeps what it has allocated, so most readings repeat the one before.
            if not self._seen or self._seen[-1] != memory:
                self._seen.append(memory)

    def peak_gib(self, pids: Collection[int]) -> float | None:
        """Return the most memory that these processes held at once; None if it is unknown.

        If the driver names no process of this machine, as in a container, it is how far the whole
        device rose above the first reading: right if nobody else used it meanwhile.
        """
        with self._lock:
            seen = tuple(self._seen)
        own_gib = [
            sum(gib for pid, gib in memory.by_process_gib.items() if pid in pids)
            for memory in seen
            if not memory.by_process_gib.keys().isdisjoint(pids)
        ]
        if own_gib:
            return max(own_gib)
        named = {pid for memory in seen for pid in memory.by_process_gib}
        used_gib = [memory.used_gib for memory in seen if memory.used_gib is not None]
        if not used_gib or any(psutil.pid_exists(pid) for pid in named):
            return None  # the driver's numbers are this machine's, and none is the trial's
        rise_gib = max(used_gib) - used_gib[0]
        return rise_gib if rise_gib > 0 else None
