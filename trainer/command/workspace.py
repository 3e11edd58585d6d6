"""The place a command runs in, and what of its directory it may read.

Its working directory is empty but for a link to each entry of the script's directory. So what a
script reads by a relative path is there, what it writes by one lands with the trial and goes with
it, and nothing that it does changes the next trial's script. Left out are

* names that begin with a dot, and links to such: ``.env`` and ``.git`` may hold keys. Below the
  top level an entry is read as a whole;
* the entry that holds the campaign, where a checkout holds its own runs: trials see no others;
* links out of the directory: a checkout could have one to the user's home. What lies elsewhere and
  is needed the menu declares under ``reads``;
* a file of the name that the score is looked for in: an earlier run's result is not this one's.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autoresearch.errors import MachineryError, SandboxError, SpecError
from autoresearch.layout import SCRATCH_DIR
from trainer.spec import Command, TrialSpec

MAX_ENTRIES = 2000
WORK_DIR = "work"


def work_dir(trial_dir: Path) -> Path:
    """Where the command runs and writes: among the trial's temporary files, which go with it."""
    return trial_dir / SCRATCH_DIR / WORK_DIR


@dataclass(frozen=True, slots=True)
class Reach:
    """What of the machine a command may read besides what every trial may."""

    listed: Path
    """A directory whose names may be listed, all the way down."""
    entries: tuple[Path, ...]
    """Of it, what may be read and run."""
    programs: tuple[Path, ...]
    """The interpreter's environment."""
    declared: tuple[Path, ...]
    """What the menu asks for."""

    @classmethod
    def of(cls, command: Command, trial_dir: Path) -> Reach:
        """
        :raises SandboxError: where that would open more than a script and its data.
        """
        directory = Path(command.directory).resolve()
        _refuse_too_much(directory, "the script's directory", trial_dir)
        declared = []
        for text in command.reads:
            path = Path(text).resolve()
            _refuse_too_much(path, "a path that the menu reads", trial_dir)
            if trial_dir.is_relative_to(path):
                raise SandboxError(
                    f"the menu reads {path}, in which the campaign lies; trials see no others: "
                    "name what the script needs of it"
                )
            declared.append(path)
        return cls(
            directory,
            tuple(_entries(directory, command, trial_dir)),
            tuple(map(Path, command.programs)),
            tuple(declared),
        )


def furnish(spec: TrialSpec, trial_dir: Path) -> None:
    """Make the working directory, before the trial is confined.

    :raises MachineryError: where it cannot be made.
    :raises SandboxError: see :meth:`Reach.of`.
    """
    if spec.command is None:
        raise SpecError("a trial without a command has no place to run one in")
    work = work_dir(trial_dir)
    try:
        work.mkdir()
        for entry in Reach.of(spec.command, trial_dir).entries:
            (work / entry.name).symlink_to(entry)
    except OSError as error:
        raise MachineryError(
            f"the trial's working directory {work} cannot be made ({error.strerror}); free some "
            "space there, or give the campaign another directory"
        ) from error


def _entries(directory: Path, command: Command, trial_dir: Path) -> Iterator[Path]:
    kept = 0
    try:
        found = sorted(directory.iterdir())
    except OSError as error:
        raise SpecError(
            f"the script's directory {directory} cannot be read ({error.strerror}); bring it back"
        ) from error
    written = (command.score.file or "").split("/", 1)[0]
    for entry in found:
        resolved = entry.resolve()
        hidden = entry.name.startswith(".") or entry.name == written
        outside = not resolved.is_relative_to(directory)
        if hidden or outside or trial_dir.is_relative_to(resolved):
            continue
        if any(part.startswith(".") for part in resolved.relative_to(directory).parts):
            continue
        kept += 1
        if kept > MAX_ENTRIES:
            raise SpecError(
                f"the script's directory {directory} holds more than {MAX_ENTRIES:,} entries; put "
                "the script into one of its own, and what it reads under [trainer] reads"
            )
        yield entry


def refuse_home(path: Path, what: str, but: Path | None = None) -> None:
    """Refuse a path that holds the user's home.

    :param but: a home in there is none: a trial's own.
    :raises SandboxError: in a sentence that calls the path ``what``.
    """
    if holds_home(path, but):
        raise SandboxError(
            f"{what} is {path}, which holds the home and whatever keys lie in it; use a directory "
            "of the script's own"
        )


def holds_home(path: Path, but: Path | None = None) -> bool:
    """Whether a path free of links is the user's home or lies above it."""
    return any(home.is_relative_to(path) for home in _homes(but))


def _homes(but: Path | None) -> Iterator[Path]:
    """By the variable and by the system's list of users, of which one may be missing."""
    named = []
    with contextlib.suppress(RuntimeError):
        named.append(Path.home())
    with contextlib.suppress(KeyError):
        named.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    for home in (one.resolve() for one in named):
        if but is None or not home.is_relative_to(but):
            yield home


def _refuse_too_much(path: Path, what: str, trial_dir: Path) -> None:
    refuse_home(path, what, trial_dir)
    if path.is_relative_to(trial_dir.parent.parent):
        raise SandboxError(
            f"{what}, {path}, lies in the campaign's own directory; put one of the two elsewhere"
        )
