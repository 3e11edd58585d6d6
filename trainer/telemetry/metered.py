"""Gives every trial the energy that its interval took."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from trainer.isolation.supervisor import Executor, Finished
from trainer.spec import CurvePoint, TrialOk, TrialSpec


class Meter(Protocol):
    """What tells the energy of an interval; a Sampler is one."""

    def mark(self) -> float: ...
    def energy_wh(self, since_s: float, until_s: float | None = None) -> float | None: ...


class MeteredExecutor:
    """An executor whose measured trials carry ``energy_wh``.

    The interval is the whole trial, from the request to the result in hand: start-up, training
    and evaluation, with what the device draws when idle.
    """

    def __init__(self, executor: Executor, meter: Meter) -> None:
        self._executor = executor
        self._meter = meter

    def run(
        self,
        spec: TrialSpec,
        trial_dir: Path,
        *,
        on_point: Callable[[CurvePoint], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Finished:
        """See :meth:`Executor.run`."""
        since_s = self._meter.mark()
        finished = self._executor.run(spec, trial_dir, on_point=on_point, should_stop=should_stop)
        energy_wh = self._meter.energy_wh(since_s)
        if energy_wh is None or not isinstance(finished.result, TrialOk):
            return finished
        result = finished.result.model_copy(update={"energy_wh": energy_wh})
        return Finished(result, finished.wall_s)
