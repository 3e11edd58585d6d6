"""A trial's temporary files, its home and working directory among them, and how they go.

The supervisor clears them when the trial has ended. One that was itself killed could not, and of a
command these may be checkpoints of gigabytes; so what earlier sittings left goes when a campaign is
opened again, before any trial runs.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from autoresearch.layout import SCRATCH_DIR, is_trial_id

_IN_THE_WAY = "in-the-way"


def clear(path: Path) -> None:
    """Make way for a file of that name, following no link.

    What cannot be removed (a very deep tree) is put aside under a name that nobody reads.

    :raises OSError: where it can be neither removed nor put aside.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError:
        _remove_tree(path)
        if os.path.lexists(path):
            path.rename(path.with_name(f"{path.name}.{secrets.token_hex(4)}.{_IN_THE_WAY}"))


def clear_left(trials: Path) -> None:
    """Remove what trials of a campaign that is at rest left of temporary files, and what was put
    aside of them; what resists stays.

    :param trials: the campaign's folder of trials, whose lock the caller holds.
    """
    with contextlib.suppress(OSError):
        for trial in trials.iterdir():
            if not is_trial_id(trial.name) or trial.is_symlink():
                continue
            with contextlib.suppress(OSError):
                if os.path.lexists(trial / SCRATCH_DIR):
                    clear(trial / SCRATCH_DIR)
                for aside in trial.glob(f"*.{_IN_THE_WAY}"):
                    _remove_tree(aside)


def _remove_tree(path: Path) -> None:
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
        if os.path.lexists(path):
            _open_folders(path)
            shutil.rmtree(path, ignore_errors=True)


def _open_folders(path: Path) -> None:
    """Let the folders of a tree be looked into that a trial made without the right to."""
    with contextlib.suppress(OSError):
        if not path.is_symlink():
            path.chmod(0o700)
    for parent, folders, _ in os.walk(path):
        for name in folders:
            folder = Path(parent, name)
            with contextlib.suppress(OSError):
                if not folder.is_symlink():
                    folder.chmod(0o700)
