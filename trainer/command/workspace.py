"""Prepare the working directory of a command, and determine which files it may read.

The working directory is empty except for a link to each entry of the script's directory, and a
folder for each of its empty folders. So relative reads find the script's files, relative writes
land in the trial and are removed with it, and nothing that a trial does changes the next trial's
script. Excluded are

* paths closed to trials (:mod:`trainer.command.open_paths`), at the top and below, and links to
them;

* the entry that holds the campaign, if a checkout holds its own runs: trials do not see others;

* links out of the directory: a checkout could link to the user's home. The menu declares other
needed paths under ``reads``; links to those are allowed, and one to each is made;

* a file with the name of the score file: an earlier run's result is not this one's.

Where a command is refused a file or does not find it, :mod:`trainer.command.hints` suggests a fix.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autoresearch.errors import SandboxError, SpecError
from autoresearch.files import writing
from autoresearch.layout import CAMPAIGN_MARKS, SCRATCH_DIR
from trainer.command.open_paths import (
    open_paths,
    real_path,
    refuse_credentials,
    refuse_home,
)
from trainer.command.program import environments_in
from trainer.schema import Command

WORK_DIR = "work"


def work_dir(trial_dir: Path, command: Command) -> Path:
    """Return where the command runs and writes: among the trial's temporary files."""
    return work_below(trial_dir / SCRATCH_DIR, command)


def work_below(home: Path, command: Command) -> Path:
    """Return the working directory below a home.

    If the menu declares paths outside the script's directory, it lies below ``work`` as the
    script's directory lies below the root, and so do links to those paths. A script that reads
    ``../data``, or goes up from ``__file__``, then finds them.
    """
    directory = Path(command.directory).resolve()
    outside = any(not Path(one).resolve().is_relative_to(directory) for one in command.reads)
    return home / WORK_DIR / (directory.relative_to("/") if outside else "")


@dataclass(frozen=True, slots=True)
class Reach:
    """Paths that a command may read besides those of every trial."""

    listed: Path
    """Directory whose names may be listed at every depth."""
    entries: tuple[Path, ...]
    """Its entries that the working directory links to."""
    granted: tuple[Path, ...]
    """Its parts that may be read and run: files, and folders with everything in them."""
    programs: tuple[Path, ...]
    """The interpreter's environment."""
    declared: tuple[Path, ...]
    """Paths that the menu declares."""
    closed: frozenset[str]
    """Its parts that are closed, each with everything in it."""
    names: tuple[Path, ...] = ()
    """Paths as the menu and the script's links write them."""
    shared_memory: Path | None = None
    """The machine's place for semaphores and shared memory, where a menu declares it."""

    @classmethod
    def of(cls, command: Command, trial_dir: Path) -> Reach:
        """Determine the paths.

        :raises SandboxError: if that would open more than a script and its data.
        :raises SpecError: if the script's directory cannot be read, or is too large.
        """
        directory = Path(command.directory).resolve()
        _refuse_too_much(directory, "the script's directory", trial_dir)
        try:
            top = sorted(path.name for path in directory.iterdir())
        except OSError as error:
            raise SpecError(
                f"the script's directory {directory} cannot be read ({error.strerror});"
                " bring it back"
            ) from error
        if mark := next((name for name in top if name in CAMPAIGN_MARKS), None):
            raise SandboxError(
                f"the script's directory {directory} holds {mark}: it is a campaign's own, and"
                " trials see no scores; put the script into another directory"
            )
        declared = tuple(_declared(command, directory, trial_dir))
        programs = *map(Path, command.programs), *environments_in(directory)
        written = (command.score.file or "").split("/", 1)[0]
        shut = {
            str(directory / name)
            for name in top
            if name.startswith(".")
            or name == written
            or trial_dir.is_relative_to(real_path(directory / name))
        }
        whole = {str(path) for path in (*declared, *programs, Path(sys.prefix, "lib").resolve())}
        granted, closed = open_paths(directory, shut=shut, whole=whole)

        def is_open(entry: Path) -> bool:
            """Return whether the working directory links to it: not if it leads out, except to a
            declared path, or to a closed one."""
            if str(entry) in closed:  # a hidden environment is open in its parts
                return any(program.is_relative_to(entry) for program in programs)
            target = real_path(entry)
            leads_in = target.is_relative_to(directory) and closed.isdisjoint(
                map(str, (target, *target.parents))
            )
            return leads_in or any(target.is_relative_to(path) for path in declared)

        entries = tuple(path for name in top if is_open(path := directory / name))
        said = *command.argv, command.directory, *command.reads, *command.programs
        names = *map(Path, filter(os.path.isabs, said)), *entries
        return cls(directory, entries, granted, programs, declared, closed, names)


def furnish(reach: Reach, work: Path) -> None:
    """Create the working directory, with its links.

    :raises MachineryError: if it cannot be created.
    """
    root = str(work).removesuffix(str(reach.listed))
    with writing(f"the working directory {work}", instead="give the campaign another directory"):
        work.mkdir(parents=True)
        for entry in reach.entries:
            is_folder = not entry.is_symlink() and os.access(entry, os.R_OK) and entry.is_dir()
            if is_folder and all(path.name.startswith(".") for path in entry.iterdir()):
                # Without visible contents, as a checkout has for what its script writes.
                (work / entry.name).mkdir()
            else:
                (work / entry.name).symlink_to(entry)
        for path in sorted(reach.declared) if root != str(work) else ():
            link = Path(f"{root}{path}")
            if not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path)


def _declared(command: Command, directory: Path, trial_dir: Path) -> Iterator[Path]:
    """Yield the paths that the menu declares, which are read whole, hidden files included."""
    for text in command.reads:
        path = Path(text).resolve()
        _refuse_too_much(path, "a path that the menu reads", trial_dir)
        refuse_credentials(path)
        for held, why in (
            (trial_dir, "in which the campaign lies; trials see no others"),
            (directory, "in which the script's directory lies, with whatever is hidden there"),
        ):
            if held.is_relative_to(path):
                raise SandboxError(
                    f"the menu reads {path}, {why}: name what the script needs of it"
                )
        yield path


def _refuse_too_much(path: Path, what: str, trial_dir: Path) -> None:
    refuse_home(path, what, trial_dir)
    if path.is_relative_to(trial_dir.parent.parent):
        raise SandboxError(
            f"{what}, {path}, lies in the campaign's own directory; put one of the two elsewhere"
        )
