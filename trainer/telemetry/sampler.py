"""Sample the device in a thread while a campaign works, and measure what its trials use of it."""

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Self

from autoresearch.closing import Closing
from trainer.executors.base import Metered
from trainer.schema import Measured, TrialFailed, TrialSpec
from trainer.telemetry.sample import Sample, Telemetry, TelemetryFile
from trainer.telemetry.summary import (
    DeviceUse,
    TelemetrySummary,
    summarize,
    use_between,
    watt_hours,
)
from trainer.telemetry.watch import MemoryWatch

INTERVAL_S = 2.0
MEMORY_INTERVAL_S = 0.5
"""Seconds between two readings of the memory that a trial holds."""

_FRESH_WAIT_S = 0.25
"""Seconds that a caller waits for a sample on demand. A driver under load answers in a few
milliseconds; one that hangs must not delay the campaign."""
_STOP_WAIT_S = 2.0


class Sampler(Closing):
    """Samples a Telemetry in a thread of its own. A context manager.

    Nothing it meets stops the campaign. A device that reports nothing is asked once; a driver that
    dies or a file that cannot be written causes one note. Only its thread ever uses the driver, so
    a query that hangs delays no caller for long.

    All methods may be called from any thread.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        path: Path | None,
        *,
        interval_s: float = INTERVAL_S,
        on_note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Prepare the thread.

        :param telemetry: owned from here on: closed when sampling ends.
        :param path: the campaign's telemetry.csv, created with the first sample worth a line and
            continued if it exists; None: keep no file.
        :param on_note: called, in the sampler's thread, with each thing a person should know.
        """
        self._telemetry = telemetry
        self._path = path
        self._interval_s = interval_s
        self._on_note = on_note
        self._file: TelemetryFile | None = None
        self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True)
        self._changed = threading.Condition()
        # Guarded by _changed:
        self._stopping = False
        self._ended = False
        self._asked = False
        self._samples: list[Sample] = []
        self._earlier: list[list[Sample]] = []
        """Samples of earlier sessions, from the file."""
        self._watches: list[MemoryWatch] = []

    def __enter__(self) -> Self:
        """Begin sampling, once."""
        self._thread.start()
        return self

    def close(self) -> None:
        """End sampling; harmless if it has ended. It waits only briefly for a query that hangs."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_STOP_WAIT_S)
            if self._thread.is_alive():
                self._on_note(
                    "telemetry: a query to the driver has not returned; its thread is abandoned"
                )

    def mark(self) -> float:
        """Return the start of an interval: a fresh sample's ``time.monotonic()``.

        If no sample comes at once, it is the time of the call.
        """
        asked_s = time.monotonic()
        with self._changed:
            return self._refreshed_s(asked_s)

    def energy_wh(self, since_s: float, until_s: float | None = None) -> float | None:
        """Return the energy of an interval of ``time.monotonic()``, in watt-hours.

        :param since_s: exact if it is a :meth:`mark`, else interpolated.
        :param until_s: None, or later than the last sample: a sample is taken now.
        :return: None if no samples cover it.
        """
        asked_s = time.monotonic()
        with self._changed:
            if until_s is None:
                until_s = self._refreshed_s(asked_s)
            elif self._last_s < until_s:
                self._refreshed_s(min(until_s, asked_s))
            return watt_hours(self._samples, since_s, until_s, reach_s=2 * self._interval_s)

    def use(self, since_s: float, until_s: float) -> DeviceUse:
        """Return the device's utilization, power and temperature in an interval of
        ``time.monotonic()``."""
        with self._changed:
            return use_between(self._samples, since_s, until_s)

    @contextmanager
    def watching_memory(self) -> Iterator[MemoryWatch]:
        """Read the device's memory twice a second while the block runs."""
        watch = MemoryWatch()
        with self._changed:
            self._watches.append(watch)
            self._refreshed_s(time.monotonic())  # the first reading comes before the sample
        try:
            yield watch
        finally:
            with self._changed:
                self._watches.remove(watch)

    def summary(self, usd_per_kwh: float) -> TelemetrySummary:
        """Sum up the campaign's samples so far, those of earlier sessions in telemetry.csv
        included."""
        with self._changed:
            return summarize([*self._earlier, self._samples], usd_per_kwh)

    @property
    def _last_s(self) -> float:
        """Time of the last sample."""
        return self._samples[-1].monotonic_s if self._samples else -math.inf

    def _refreshed_s(self, asked_s: float) -> float:
        """With ``_changed`` held, wait briefly for a sample no older than ``asked_s``.

        Return its time, or ``asked_s`` if none comes.
        """
        if not self._ended and self._thread.is_alive():
            self._asked = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or self._last_s >= asked_s, _FRESH_WAIT_S)
        return max(self._last_s, asked_s)

    def _work(self) -> None:
        """Run the thread."""
        try:
            sample = self._telemetry.sample()
            if sample.blank:
                return
            with self._noting_refusals():
                if self._path is not None:
                    self._file = TelemetryFile(self._path)
                    with self._changed:
                        self._earlier = self._file.sessions
            while not sample.blank:
                with self._changed:
                    self._samples.append(sample)
                    self._changed.notify_all()
                with self._noting_refusals():
                    if self._file is not None:
                        elapsed_s = sample.monotonic_s - self._samples[0].monotonic_s
                        self._file.append(sample, elapsed_s)
                if not self._await_next():
                    return
                sample = self._telemetry.sample()
            self._on_note(
                "telemetry ended: the device no longer answers; the campaign continues without it"
            )
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            self._telemetry.close()

    def _await_next(self) -> bool:
        """Wait until the next sample is due or asked for, and read the memory meanwhile for those
        who watch it; return False if sampling ends."""
        while True:
            with self._changed:
                due_s = self._last_s + self._interval_s
                pause_s = due_s - time.monotonic()
                if self._watches:
                    pause_s = min(pause_s, MEMORY_INTERVAL_S)
                self._changed.wait_for(lambda: self._stopping or self._asked, max(0.0, pause_s))
                if self._stopping:
                    return False
                is_due = self._asked or time.monotonic() >= due_s
                watches = tuple(self._watches)
                if is_due:
                    self._asked = False
            memory = self._telemetry.memory() if watches else None
            if memory is not None:
                for watch in watches:
                    watch.add(memory)
            if is_due:
                return True

    @contextmanager
    def _noting_refusals(self) -> Iterator[None]:
        """Give up the file if the disk refuses it."""
        try:
            yield
        except OSError as error:
            self._on_note(
                f"{self._path} cannot be written ({error.strerror or error}); "
                "sampling continues without it"
            )
            self._file = None


@contextmanager
def metering(sampler: Sampler, spec: TrialSpec) -> Iterator[Metered]:
    """Measure what a trial uses of the sampler's device; see :data:`trainer.executors.base.Meter`.

    The interval is the whole trial: start-up, training and evaluation, idle power included. A
    command's GPU memory is read from outside; the built-in trainer reports its own.
    """
    is_watched = spec.trainer.is_watched and spec.device.startswith("cuda")
    with sampler.watching_memory() if is_watched else nullcontext() as watch:
        since_s = sampler.mark()

        def metered(
            result: Measured | TrialFailed, pids: Collection[int]
        ) -> Measured | TrialFailed:
            found: dict[str, float | None] = {}
            if watch is not None:
                found["peak_gpu_mem_gib"] = watch.peak_gib(pids)
            if not isinstance(result, TrialFailed):
                found["energy_wh"] = sampler.energy_wh(since_s)
                utilization = sampler.use(since_s, time.monotonic()).gpu_util_pct
                found["gpu_util_pct"] = None if utilization is None else utilization.mean
            return result.model_copy(update=found)

        yield metered
