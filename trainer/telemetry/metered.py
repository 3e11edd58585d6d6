"""Measure the energy of a trial's interval."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from trainer.executors.base import Finished
from trainer.spec import TrialFailed


class Meter(Protocol):
    """Measures the energy of an interval; a Sampler is one."""

    def mark(self) -> float: ...
    def energy_wh(self, since_s: float, until_s: float | None = None) -> float | None: ...


def begin_metering(meter: Meter) -> Callable[[Finished], Finished]:
    """Begin to meter a trial, and return a function that adds ``energy_wh`` to its result.

    The interval is the whole trial, from the request to the result: start-up, training and
    evaluation, idle power included. With several concurrent trials their energies cannot be
    separated.
    """
    since_s, asked_s = meter.mark(), time.monotonic()

    def metered(finished: Finished) -> Finished:
        if isinstance(finished.result, TrialFailed):
            return finished
        energy_wh = meter.energy_wh(since_s, asked_s + finished.wall_s)
        if energy_wh is None:
            return finished
        result = finished.result.model_copy(update={"energy_wh": energy_wh})
        return replace(finished, result=result)

    return metered
