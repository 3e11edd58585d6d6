"""Keep a trial's spec and result where the trial cannot write.

A trial may write its own directory, its spec.json included. So what is trusted later is the copy
beside that directory, ``trials/.specs/t000001.json`` for ``trials/t000001``, which the sandbox
keeps closed. spec.json itself is for the trial and for people to read. The supervisor's copy of the
result, ``t000001.result.json``, is there for the same reason.
"""

from __future__ import annotations

from pathlib import Path

from autoresearch.layout import ORDERS_DIR


def sealed_path(trial_dir: Path) -> Path:
    """Return the path of the sealed spec of the trial in ``trial_dir``."""
    return trial_dir.parent / ORDERS_DIR / f"{trial_dir.name}.json"


def sealed_result_path(trial_dir: Path) -> Path:
    """Return the path of the sealed result of the trial in ``trial_dir``."""
    return trial_dir.parent / ORDERS_DIR / f"{trial_dir.name}.result.json"
