"""Report when trials take several times longer than before, and the likely reason.

It only reports: a trial's result does not depend on its speed.
"""

from __future__ import annotations

import os

from trainer.spec import TrialOk
from trajectory.rows import TrialRecord

SAME_CONFIG = 3.0
"""Ratio to the fastest step of the same config above which a trial is slow."""
OTHER_CONFIG = 8.0
"""The same ratio to the fastest step per parameter and token of any config, since sizes differ."""
IN_A_ROW = 2
"""Slow trials in a row before a report."""


class Pace:
    """Follows the speed of one session's trials."""

    def __init__(self) -> None:
        self._of_config: dict[str, float] = {}
        self._of_any: float | None = None
        self._slow = 0
        self._reported = False

    def ended(self, record: TrialRecord) -> str | None:
        """Return a sentence when trials have become slow, once until they are fast again."""
        result = record.result  # a command's size and steps are unknown
        if not isinstance(result, TrialOk):
            return None
        times, usual_ms = self._compared(record.config_hash, result)
        if times is None:
            self._slow, self._reported = 0, False
            return None
        self._slow += 1
        if self._slow < IN_A_ROW or self._reported:
            return None
        self._reported = True
        return (
            f"trials take {times:.1f} times as long as before ({result.step_ms:,.0f} ms a step, "
            f"{usual_ms:,.0f} before): {_why()}. Stop other programs, or run with "
            "--threads 1, since the threads of a trial wait for each other; scores are unaffected"
        )

    def _compared(self, config_hash: str, result: TrialOk) -> tuple[float | None, float]:
        """Return the slow-down, None if it is usual, and the usual step time in milliseconds."""
        work = float(result.params) * result.tokens / result.steps
        same, other = self._of_config.get(config_hash), self._of_any
        self._of_config[config_hash] = min(same or result.step_ms, result.step_ms)
        self._of_any = min(other or result.step_ms / work, result.step_ms / work)
        if same is not None and result.step_ms > SAME_CONFIG * same:
            return result.step_ms / same, same
        if same is None and other is not None and result.step_ms > OTHER_CONFIG * other * work:
            return result.step_ms / (other * work), other * work
        return None, result.step_ms


def _why() -> str:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        return (
            f"more processes are runnable than this machine has cores (load {load:.1f} on {cores})"
        )
    return f"the machine is not busy now (load {load:.1f} on {cores} cores)"
