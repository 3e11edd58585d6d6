"""A trial that only reports when its first instruction ran, with torch imported."""

import time
from pathlib import Path

import torch  # noqa: F401 (a real trial's process imports it)

from trainer.schema import TrialFailed, TrialSpec

ENTRY = "bench.trivial_trial:run"


def run(spec: TrialSpec, trial_dir: Path, *, born: float) -> TrialFailed:
    """Return the time (``time.monotonic()``) as the message of a result."""
    return TrialFailed(status="pruned", message=repr(time.monotonic()))
