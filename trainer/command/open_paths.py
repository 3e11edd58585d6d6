"""Determine which files of a script's directory a trial may read, at every depth, and which paths
hold credentials.

Landlock can only grant: a folder cannot be granted and a part of it then closed. So the tree is
searched before each trial. A folder that contains something closed is granted entry by entry, as is
each folder above it, and all others are granted whole. Closed are

* names that begin with a dot: ``.env``, ``.git`` and the like may hold keys. The exceptions are a
few small files with known content (:data:`HARMLESS`), which often lie beside much data;

* folders of campaigns, the trial's own included: a journal holds scores;

* folders that this user may not read;

* sockets, pipes and device nodes: another process is at their other end.

A link grants nothing: its target is as open as its own location makes it.
"""

import contextlib
import os
import pwd
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from autoresearch.errors import SandboxError, SpecError
from autoresearch.layout import CAMPAIGN_MARKS

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

MOST_SEEN = 100_000
"""Most files and folders to search before a trial, in a tenth of a second or two."""
MOST_GRANTED = 5000
HARMLESS = frozenset(".gitignore .gitkeep .gitattributes .keep .DS_Store".split())


@dataclass(slots=True)
class _Walk:
    directory: Path
    whole: Set[str]
    """Folders that are not searched."""
    closed: set[str]
    in_part: dict[str, str]
    """Folders that are granted entry by entry, each with a closed entry."""
    seen: int = 0

    def search(self) -> None:
        top = str(self.directory)
        left = [top]
        while left:
            folder = left.pop()
            try:
                with os.scandir(folder) as found:
                    entries = list(found)
            except OSError:
                self._close(folder)
                continue
            if folder != top and any(entry.name in CAMPAIGN_MARKS for entry in entries):
                self._close(folder)
                continue
            self.seen += len(entries)
            if self.seen > MOST_SEEN:
                first = Path(folder).relative_to(self.directory).parts[:1]
                raise SpecError(
                    f"the script's directory {self.directory} holds more than {MOST_SEEN:,} files"
                    " and folders, too many to look through for hidden ones before each trial; name"
                    " what the script reads of them under [trainer] reads"
                    f' ("{first[0] if first else "data"}", say): that is read whole, hidden files'
                    " and all"
                )
            for entry in entries:
                if entry.path in self.closed or entry.path in self.whole:
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                is_special = not (is_folder or entry.is_symlink() or entry.is_file())
                is_hidden = entry.name.startswith(".") and (is_folder or entry.name not in HARMLESS)
                if is_special or is_hidden:
                    self._close(entry.path)
                elif is_folder:
                    left.append(entry.path)

    def _close(self, path: str) -> None:
        self.closed.add(path)
        above = path.rpartition("/")[0]
        while above not in self.in_part:  # the directory itself always is
            self.in_part[above] = path
            above = above.rpartition("/")[0]

    def granted(self) -> Iterator[Path]:
        left, number = [str(self.directory)], 0
        while left:
            folder = left.pop()
            # an entry that was removed meanwhile
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.path in self.closed or entry.path in self.whole or entry.is_symlink():
                        continue
                    if entry.path in self.in_part:
                        left.append(entry.path)
                        continue
                    number += 1
                    if number > MOST_GRANTED:
                        why = self.in_part[folder]
                        said = f"holds {why}, which is closed to trials" if why else "is large"
                        raise SpecError(
                            f"{folder} {said}, and with it more than {MOST_GRANTED:,} entries that"
                            " would have to be opened one by one; move one of the two into a folder"
                            " of its own, or name what the script needs under [trainer] reads"
                        )
                    yield Path(entry.path)


def open_paths(
    directory: Path, *, shut: Set[str], whole: Set[str]
) -> tuple[tuple[Path, ...], frozenset[str]]:
    """Return the open parts of ``directory``, which is free of links, and its closed ones.

    Open are files, and folders with everything in them.

    :param shut: further entries to close, by their paths.
    :param whole: folders that need no search: they are granted elsewhere.
    :raises SpecError: if it has too many entries, with the fix.
    """
    walk = _Walk(directory, whole, set(shut), {str(directory): ""})
    walk.search()
    return tuple(walk.granted()), frozenset(walk.closed)


def real_path(path: Path) -> Path:
    """Return the target of its links; a circular link resolves to a path without a file."""
    return Path(os.path.realpath(path))


def refuse_credentials(path: Path) -> None:
    """Refuse a path free of links that is, lies in or contains a known place of credentials.

    :raises SandboxError: in a sentence that names the place.
    """
    if held := credentials_at(path):
        raise SandboxError(
            f"the menu reads {path}, and trials see no credentials such as {held}; name only "
            "the data that the script needs"
        )


def credentials_at(path: Path) -> Path | None:
    """Return the known place of credentials that a path free of links is, lies in or contains."""
    places = [real_path(home / name) for home in _homes(None) for name in _CREDENTIALS]
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
