"""A trial that sleeps: what it takes besides is the machinery's."""

from __future__ import annotations

import time
from pathlib import Path

from trainer.spec import TrialFailed, TrialSpec

ENTRY = "bench.sleeping_trial:run"
SLEEP_S = 2.0


def run(spec: TrialSpec, trial_dir: Path, *, born: float) -> TrialFailed:
    """Sleep, and return a result."""
    time.sleep(SLEEP_S)
    return TrialFailed(status="pruned", message="slept")
