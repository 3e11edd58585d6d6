"""A trial that sleeps, and says when it began and ended."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch  # noqa: F401 (what a real trial's process holds)

from trainer.spec import TrialFailed, TrialSpec

ENTRY = "bench.lanes.sleeping:run"


def run(spec: TrialSpec, trial_dir: Path, *, born: float) -> TrialFailed:
    """Sleep as many seconds as the spec's budget says; leave both times (``time.monotonic()``) and
    the processors it could use in the result, where a message has room for them."""
    began = time.monotonic()
    time.sleep(spec.budget.amount)
    said = json.dumps([began, time.monotonic(), sorted(os.sched_getaffinity(0))])
    return TrialFailed(status="pruned", message=said)
