"""Says when trials take several times what they took, and why that may be.

It only tells: what a trial measures does not hang on how fast it ran.
"""

from __future__ import annotations

import os

from trainer.spec import TrialOk
from trajectory.rows import TrialRecord

SAME_CONFIG = 3.0
"""Times the fastest step of the same config, above which a trial was slow."""
OTHER_CONFIG = 8.0
"""The same by the fastest step for each parameter and token of any config: sizes differ in that."""
IN_A_ROW = 2
"""Slow trials before anything is said."""


class Pace:
    """Follows the speed of one sitting's trials."""

    def __init__(self) -> None:
        self._of_config: dict[str, float] = {}
        self._of_any: float | None = None
        self._slow = 0
        self._told = False

    def ended(self, record: TrialRecord) -> str | None:
        """A sentence where trials have become slow, once until they are fast again."""
        result = record.result  # of a command neither size nor step is known
        if not isinstance(result, TrialOk):
            return None
        times, usual_ms = self._compared(record.config_hash, result)
        if times is None:
            self._slow, self._told = 0, False
            return None
        self._slow += 1
        if self._slow < IN_A_ROW or self._told:
            return None
        self._told = True
        return (
            f"trials take {times:.1f} times what they took ({result.step_ms:,.0f} ms a step, "
            f"{usual_ms:,.0f} before): {_why()}. End what runs beside them, or give a campaign "
            "--threads 1, since the threads of a trial wait for each other; its numbers are sound"
        )

    def _compared(self, config_hash: str, result: TrialOk) -> tuple[float | None, float]:
        """How many times as slow as before, None where that is usual; and the usual step."""
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
        return f"more wants to run than this machine has cores (load {load:.1f} on {cores})"
    return f"the machine does not look busy now (load {load:.1f} on {cores} cores)"
