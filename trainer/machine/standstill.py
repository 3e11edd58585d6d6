"""Measure a trial's time without the time in which it, or the machine, was suspended.

A closed laptop, a paused container and a stopped process look alike from inside: no code runs, and
clocks continue. A supervisor that wakes every tenth of a second sees a gap between two ticks, and
sees a trial that alone was stopped by its process state.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_GAP_S = 2.0
"""Ticks come ten times a second; one this late did not only wait for a processor."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Continues while the machine is suspended, so that a suspension is a gap too."""


class TrialTime:
    """Remaining part of a trial's time limit."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._ticked_s = time.clock_gettime(_CLOCK)
        self._busy_s = time.thread_time()
        self._stopped_s = 0.0
        self.left_s = limit_s
        self.still_s = 0.0
        """Seconds that did not count."""

    def tick(self, is_stopped: Callable[[], bool]) -> None:
        """Count the time since the same thread's last tick."""
        now_s, busy_s = time.clock_gettime(_CLOCK), time.thread_time()
        idle_s = now_s - self._ticked_s - (busy_s - self._busy_s)
        self.count(now_s - self._ticked_s, idle_s, is_stopped)
        self._ticked_s, self._busy_s = now_s, busy_s

    def count(self, passed_s: float, idle_s: float, is_stopped: Callable[[], bool]) -> None:
        """Count ``passed_s``, of which the supervisor was idle for ``idle_s``.

        A trial can stop itself, so time in which it alone was stopped is free only up to the limit.
        """
        still_s = 0.0
        if idle_s > _GAP_S:
            still_s = idle_s
        elif self._stopped_s < self._limit_s and is_stopped():
            still_s = passed_s
            self._stopped_s += passed_s
        self.still_s += still_s
        self.left_s -= passed_s - still_s
