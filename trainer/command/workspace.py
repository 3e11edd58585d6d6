"""Prepare the working directory of a command, and determine which files it may read.

The working directory is empty except for a link to each entry of the script's directory. So
relative reads find the script's files, relative writes land in the trial and are removed with it,
and nothing that a trial does changes the next trial's script. Excluded are

* paths closed to trials (:mod:`trainer.command.open_paths`), at the top and below, and links to
them;

* the entry that holds the campaign, if a checkout holds its own runs: trials do not see others;

* links out of the directory: a checkout could link to the user's home. The menu declares other
needed paths under ``reads``; links to those are allowed, and one to each is made;

* a file with the name of the score file: an earlier run's result is not this one's.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autoresearch.errors import MachineryError, SandboxError, SpecError
from autoresearch.layout import CAMPAIGN_MARKS, SCRATCH_DIR
from trainer.command.open_paths import OpenPaths, open_paths
from trainer.spec import Command

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
    shared_memory: Path | None = None
    """Place for this trial's own semaphores and shared memory."""

    @classmethod
    def of(cls, command: Command, trial_dir: Path) -> Reach:
        """Determine the paths.

        :raises SandboxError: if that would open more than a script and its data.
        :raises SpecError: if the script's directory cannot be read, or is too large.
        """
        directory = Path(command.directory).resolve()
        _refuse_too_much(directory, "the script's directory", trial_dir)
        top = _names_in(directory)
        _refuse_campaign(directory, top)
        declared = tuple(_declared(command, directory, trial_dir))
        programs = tuple(map(Path, command.programs))
        shut = {
            str(directory / name) for name in top if _shut(directory / name, command, trial_dir)
        }
        whole = {str(path) for path in (*declared, *programs, Path(sys.prefix, "lib").resolve())}
        opened = open_paths(directory, shut=shut, whole=whole)
        entries = tuple(
            path for name in top if _is_open(path := directory / name, opened, declared)
        )
        return cls(directory, entries, opened.granted, programs, declared, opened.closed)

    def opens(self, path: Path) -> bool:
        """Return whether a path below the directory, free of links, is open."""
        return OpenPaths(self.listed, self.granted, self.closed).allows(path)


_CREDENTIALS = (
    ".ssh .aws .azure .kube .docker .gnupg .huggingface .netrc .git-credentials .pypirc .npmrc"
    " .pgpass .cache/huggingface/token .cache/huggingface/stored_tokens .config/gcloud .config/gh"
    " .config/wandb .config/rclone .config/ngc .ngc .kaggle .password-store"
).split()
"""Places in a home where known tools keep keys and tokens."""
_KEY_FILE = re.compile(
    r"id_(rsa|dsa|ecdsa|ed25519)(_sk)?|.*\.(pem|key|p12|pfx)|\.env(\..+)?"
    r"|credentials(\.\w+)?|service[-_]account.*\.json",
    re.IGNORECASE,
)
"""Names of files that hold keys, wherever they are."""


def furnish(reach: Reach, work: Path) -> None:
    """Create the working directory, with its links.

    :raises MachineryError: if it cannot be created.
    """
    root = str(work).removesuffix(str(reach.listed))
    try:
        work.mkdir(parents=True)
        for entry in reach.entries:
            (work / entry.name).symlink_to(entry)
        for path in sorted(reach.declared) if root != str(work) else ():
            link = Path(f"{root}{path}")
            if not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path)
    except OSError as error:
        raise MachineryError(
            f"the trial's working directory {work} cannot be made ({error.strerror}); free some "
            "space there, or give the campaign another directory"
        ) from error


def _names_in(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except OSError as error:
        raise SpecError(
            f"the script's directory {directory} cannot be read ({error.strerror}); bring it back"
        ) from error


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


def _shut(entry: Path, command: Command, trial_dir: Path) -> bool:
    """Return whether this trial closes an entry of the script's directory."""
    written = (command.score.file or "").split("/", 1)[0]
    return (
        entry.name.startswith(".")
        or entry.name == written
        or trial_dir.is_relative_to(_real(entry))
    )


def _real(path: Path) -> Path:
    """Return the target of its links; a circular link resolves to a path without a file."""
    return Path(os.path.realpath(path))


def _is_open(entry: Path, opened: OpenPaths, declared: tuple[Path, ...]) -> bool:
    """Return whether the working directory links to an entry: not if it leads out, except to a
    declared path, or to a closed one."""
    resolved = _real(entry)
    leads_in = resolved.is_relative_to(opened.directory) and opened.allows(resolved)
    return opened.allows(entry) and (
        leads_in or any(resolved.is_relative_to(path) for path in declared)
    )


def refuse_credentials(path: Path) -> None:
    """Refuse a path free of links that is, lies in or contains a known place of credentials.

    :raises SandboxError: in a sentence that names the place.
    """
    held = _credentials_at(path)
    if held is not None:
        raise SandboxError(
            f"the menu reads {path}, and trials see no credentials such as {held}; name only "
            "the data that the script needs"
        )


def is_credential(path: Path) -> bool:
    """Return whether :func:`refuse_credentials` refuses it."""
    return _credentials_at(path) is not None


def _credentials_at(path: Path) -> Path | None:
    places = [_real(home / name) for home in _homes(None) for name in _CREDENTIALS]
    held = [one for one in places if path.is_relative_to(one)]
    held += [one for one in places if one.is_relative_to(path) and os.access(one, os.F_OK)]
    if _KEY_FILE.fullmatch(path.name) or set(path.parts) & set(_CREDENTIALS):
        held.append(path)
    return held[0] if held else None


def refuse_home(path: Path, what: str, but: Path | None = None) -> None:
    """Refuse a path that contains the user's home.

    :param but: homes inside this path, a trial's own, do not count.
    :raises SandboxError: in a sentence that calls the path ``what``.
    """
    if holds_home(path, but):
        raise SandboxError(
            f"{what} is {path}, which holds the home and whatever keys lie in it; use a directory "
            "of the script's own"
        )


def holds_home(path: Path, but: Path | None = None) -> bool:
    """Return whether a path free of links is the user's home or lies above it."""
    return any(home.is_relative_to(path) for home in _homes(but))


def _homes(but: Path | None) -> Iterator[Path]:
    """Yield homes from the variable and from the system's list of users, one of which may be
    missing."""
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


def _refuse_campaign(directory: Path, names: list[str]) -> None:
    mark = next((name for name in names if name in CAMPAIGN_MARKS), None)
    if mark is not None:
        raise SandboxError(
            f"the script's directory {directory} holds {mark}: it is a campaign's own, and trials "
            "see no scores; put the script into another directory"
        )
