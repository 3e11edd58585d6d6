"""The order a trial was given and the result it came to, kept where the trial cannot write.

A trial may write its own directory, spec.json in it included. So what is believed of a trial later
is the copy beside that directory, ``trials/.specs/t000001.json`` for ``trials/t000001``, which the
sandbox keeps closed; spec.json itself is for the trial and for people to read. The
supervisor's copy of the result, ``t000001.result.json``, lies there for the same reason.
"""

from __future__ import annotations

from pathlib import Path

from autoresearch.layout import ORDERS_DIR


def sealed_path(trial_dir: Path) -> Path:
    """Where the order of the trial in ``trial_dir`` is kept."""
    return trial_dir.parent / ORDERS_DIR / f"{trial_dir.name}.json"


def sealed_result_path(trial_dir: Path) -> Path:
    """Where the result of the trial in ``trial_dir`` is kept."""
    return trial_dir.parent / ORDERS_DIR / f"{trial_dir.name}.result.json"
