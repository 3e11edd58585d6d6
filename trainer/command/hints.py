"""Suggest a fix for a command that was refused a file or did not find it, from its last output.

The lines are untrusted: a name in them is looked up and, if shown, made plain and cut.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from autoresearch.plain_text import plain

_DENIED = re.compile(
    r"""[Pp]ermission\ denied:\ (?P<quote>['"])(?P<after>.{1,400}?)(?P=quote)  # Python
      | (?P<before>(?=[^\s:'"]*[./])[^\s:'"]{1,400}):\ [Pp]ermission\ denied    # sh, C programs
      | [Pp]ermission\ denied                                                  # torch.save
    """,
    re.VERBOSE,
)
_SHARED = re.compile(r"SemLock|_multiprocessing|/dev/shm|shared memory object")
_NO_SHARED_MEMORY = (
    "semaphores and shared memory need a /dev/shm of the trial's own, and this machine allows no "
    "mount namespace for it; allow unprivileged user namespaces, write shared_memory = true under "
    "[trainer] to share the machine's, or start no workers: num_workers=0"
)
_WRITES = (
    "trials write below {out}, or by a relative path where the script's directory has nothing of "
    "that name; what a run by hand left there they only read: move it away, or write below {out}"
)
_MISSING = re.compile(
    r"""No such file or directory: (['"])(?P<python>.{1,400}?)\1"""
    r"|FileNotFoundError: (?P<numpy>.{1,400}?) not found\."
)
_SHOWN_CHARACTERS = 80


def refusal_hint(lines: Iterable[str], directory: Path, work: Path) -> str:
    """Return a fix if one of these lines shows a refused file, the last one first, or one that only
    a run by hand finds; else empty.

    :param directory: the script's directory.
    :param work: where the command ran.
    """
    lines = list(lines)
    found = [match for line in lines if (match := _DENIED.search(line)) is not None]
    if not found:
        return _outside_hint(lines, directory, work)
    name = found[-1]["after"] or found[-1]["before"]
    is_shared = any(_SHARED.search(line) for line in lines)
    if name is None or is_shared:
        return _NO_SHARED_MEMORY if is_shared else _WRITES
    path = Path(os.path.realpath(work / name))
    if path.is_relative_to(work):
        return ""
    if not path.is_relative_to(directory):
        return (
            f"{_shown(name)} is closed to trials: have it written below {{out}}, or read by "
            "naming it under [trainer] reads"
        )
    within = path.relative_to(directory)
    if any(part.startswith(".") for part in within.parts):
        return (
            f"{_shown(within)} is hidden, and so closed to trials; name it under [trainer] reads "
            "if the script needs it"
        )
    return (
        f"{_shown(within)} lies in the script's directory, which trials only read; move it away if "
        "a run by hand left it, or have it written below {out}"
    )


def _outside_hint(lines: Iterable[str], directory: Path, work: Path) -> str:
    """Return a fix for a missing file that a run by hand finds, outside the script's directory."""
    for line in lines:
        for match in _MISSING.finditer(line):
            from_work = os.path.relpath(work / (match["python"] or match["numpy"]), work)
            path = Path(os.path.normpath(directory / from_work))
            if path.exists() and not path.is_relative_to(directory):
                return (
                    f"{_shown(path)} is outside the script's directory: name it, or the folder "
                    "with all that the script reads there, under [trainer] reads"
                )
    return ""


def _shown(name: object) -> str:
    return plain(str(name))[:_SHOWN_CHARACTERS]
