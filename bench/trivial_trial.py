"""A trial that does nothing but tell when its first instruction ran, with torch imported."""

from __future__ import annotations

import time
from pathlib import Path

import torch  # noqa: F401 (what a real trial's process holds)

from trainer.spec import TrialFailed, TrialSpec

ENTRY = "bench.trivial_trial:run"


def run(spec: TrialSpec, trial_dir: Path, *, born: float) -> None:
    """Leave the time (``time.monotonic()``) in ``result.json``, where a message has room for it."""
    result = TrialFailed(status="pruned", message=repr(time.monotonic()))
    (trial_dir / "result.json").write_text(result.model_dump_json())
