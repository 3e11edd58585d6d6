"""A trial that does nothing but tell when its first instruction ran, with torch imported."""

from __future__ import annotations

import time
from pathlib import Path

import torch  # noqa: F401 (what a real trial's process holds)

from trainer.spec import TrialFailed, TrialSpec

ENTRY = "bench.trivial_trial:run"


def run(spec: TrialSpec, trial_dir: Path, *, born: float) -> TrialFailed:
    """Leave the time (``time.monotonic()``) in the result, where a message has room for it."""
    return TrialFailed(status="pruned", message=repr(time.monotonic()))
