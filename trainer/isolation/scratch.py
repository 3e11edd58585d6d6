"""Remove a trial's temporary files, including its home and working directory.

The supervisor clears them when the trial has ended. A supervisor that was itself killed could not,
and a command's files may be checkpoints of gigabytes. So files from earlier sessions are removed
when a campaign is opened again, before any trial runs.
"""

import contextlib
import os
import secrets
import shutil
from itertools import chain
from pathlib import Path

from autoresearch.layout import SCRATCH_DIR, is_trial_id

_MOVED = "in-the-way"


def clear(path: Path) -> None:
    """Remove whatever has that name, following no link.

    What cannot be removed (a very deep tree) is renamed out of the way.

    :raises OSError: if it can be neither removed nor renamed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError:
        _remove_tree(path)
        if os.path.lexists(path):
            path.rename(path.with_name(f"{path.name}.{secrets.token_hex(4)}.{_MOVED}"))


def clear_left(trials: Path) -> None:
    """Remove temporary files that trials of an idle campaign left, and renamed ones; what resists
    stays.

    :param trials: the campaign's folder of trials, whose lock the caller holds.
    """
    with contextlib.suppress(OSError):
        for trial in trials.iterdir():
            if not is_trial_id(trial.name) or trial.is_symlink():
                continue
            with contextlib.suppress(OSError):
                if os.path.lexists(trial / SCRATCH_DIR):
                    clear(trial / SCRATCH_DIR)
                for moved in trial.glob(f"*.{_MOVED}"):
                    _remove_tree(moved)


def _remove_tree(path: Path) -> None:
    """Remove a tree as far as possible, folders without permissions too; follow no link."""
    below = (Path(parent, name) for parent, folders, _ in os.walk(path) for name in folders)
    with contextlib.suppress(RecursionError):
        for folder in chain((path,), below):  # each before the walk lists it
            with contextlib.suppress(OSError):
                if not folder.is_symlink():
                    folder.chmod(0o700)
    with contextlib.suppress(RecursionError):  # even if the walk met one: less is left
        shutil.rmtree(path, ignore_errors=True)
