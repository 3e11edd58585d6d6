"""Pack the part of a script's directory that a trial may read, as one file for other machines, and
hash its code, which is part of a command's evaluation protocol: a campaign does not change it.

The archive holds what :class:`Reach` opens: no hidden files, no campaigns and no links that lead
out. It omits the paths that a menu declares under ``reads``, which must be on every machine under
the same path. If one lies in the directory, the archive holds a link to it. It also omits folders
of an environment, and Python's compiled files beside a script, which Python makes again.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from autoresearch.errors import SpecError
from autoresearch.layout import CAMPAIGN_MARKS
from autoresearch.words import is_utf8
from trainer.command.workspace import Reach
from trainer.spec import Command

MOST_BYTES = 256 << 20
"""Size limit of a directory that is sent: two seconds by 1 GbE. A larger directory holds data."""
MOST_ENTRIES = 20_000
_COMPILED = "__pycache__"


def pack(command: Command, trial_dir: Path, into: IO[bytes]) -> tuple[int, int]:
    """Write what a trial may read of the script's directory as a tar archive.

    Equal directories give equal bytes. Return how many files there are, and their bytes.

    :param trial_dir: the directory of a trial here; the archive omits its campaign.
    :raises SpecError: if the directory is too large or cannot be read.
    :raises SandboxError: if it holds more than a script and its data.
    """
    packing = _Packing.of(command, trial_dir)
    try:
        with tarfile.open(fileobj=into, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(packing.reach.listed.iterdir()):
                archive.add(path, arcname=path.name, filter=packing.kept)
    except OSError as error:
        raise SpecError(
            f"{error.filename or packing.reach.listed}, of the script's directory, cannot be read"
            f" ({error.strerror or error}); run this again once no process writes there"
        ) from error
    return packing.files, packing.size_bytes


def weigh(command: Command, trial_dir: Path) -> tuple[int, int]:
    """Return how many files would go to other machines, and how many bytes they have.

    :raises SpecError: see :func:`pack`.
    :raises SandboxError: see :func:`pack`.
    """
    with Path(os.devnull).open("wb") as nowhere:
        return pack(command, trial_dir, nowhere)


def unpack(archive: Path, tree: Path) -> None:
    """Create the directory that was packed.

    :raises OSError: if the disk refuses.
    """
    tree.mkdir()
    with tarfile.open(archive) as packed:
        # Hash and sender are known. Links to declared paths are absolute, which filters refuse.
        packed.extractall(tree, filter="fully_trusted")


def tree_sha256(tree: Path) -> str:
    """Return a hash of a directory's names, contents, modes and link targets.

    :raises OSError: if it cannot be read.
    """
    digest = hashlib.sha256()
    for parent, folders, names in os.walk(tree):
        folders[:] = sorted(name for name in folders if name != _COMPILED)
        for name in sorted({*folders, *names}):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            digest.update(f"{path.relative_to(tree)}\0{mode:o}\0".encode())
            if path.is_symlink():
                digest.update(os.fsencode(path.readlink()))
            elif path.is_file():
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@dataclass
class _Packing:
    reach: Reach
    declared: dict[str, str]
    """Paths that the menu declares, by their places here and by the targets of links there."""
    files: int = 0
    entries: int = 0
    size_bytes: int = 0
    _by_top: Counter[str] = field(default_factory=Counter)
    """Bytes of each entry of the directory itself."""

    @classmethod
    def of(cls, command: Command, trial_dir: Path) -> _Packing:
        paths = [Path(named) for named in command.reads]
        ends = {str(path.resolve()): str(path) for path in paths}
        places = {str(path.parent.resolve() / path.name): str(path) for path in paths}
        return cls(Reach.of(command, trial_dir), {**ends, **places})

    def kept(self, entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        """Return the entry as it is sent; None if it stays here.

        :raises SpecError: if its name cannot be sent, or the totals exceed a limit.
        """
        path = str(self.reach.listed / entry.name)
        if path in self.reach.closed or Path(path).name == _COMPILED:
            return None
        if not is_utf8(entry.name):
            raise SpecError(
                f"{entry.name!r} in the script's directory is not valid UTF-8 and cannot be sent"
                " to another machine; rename it"
            )
        if path in self.declared:
            entry.type, entry.linkname, entry.size = tarfile.SYMTYPE, self.declared[path], 0
        elif entry.issym():
            entry.linkname = self._target(Path(path))
            if not entry.linkname:
                return None
        elif entry.islnk() or entry.isreg():
            if not os.access(path, os.R_OK):
                return None
            size = Path(path).stat().st_size  # a second name of a file is sent as a second file
            entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", size
        elif not entry.isdir() or Path(path) in self.reach.programs:
            return None
        self._count(entry)
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    def _target(self, link: Path) -> str:
        """Return the target of a link that is sent; empty for one that stays here."""
        real = Path(os.path.realpath(link))
        for place, named in self.declared.items():
            if real.is_relative_to(place):
                return str(Path(named) / real.relative_to(place))
        top = self.reach.listed
        if not real.is_relative_to(top) or real == top or not self.reach.opens(real):
            return ""
        return os.path.relpath(real, os.path.realpath(link.parent))

    def _count(self, entry: tarfile.TarInfo) -> None:
        """Add the entry to the totals.

        :raises SpecError: if they exceed a limit; it names the entry that holds the most.
        """
        self.entries += 1
        self.files += entry.isreg()
        self.size_bytes += entry.size
        self._by_top[entry.name.split("/", 1)[0]] += max(entry.size, 1)
        if self.size_bytes <= MOST_BYTES and self.entries <= MOST_ENTRIES:
            return
        [(largest, _)] = self._by_top.most_common(1)
        raise SpecError(
            f"the script's directory {self.reach.listed} holds more than is sent to other"
            f" machines, which is {MOST_BYTES >> 20} MiB in {MOST_ENTRIES:,} files and folders at"
            f" most; the most is in {largest}: name what the script reads of it under [trainer]"
            f" reads, and put that on every node under the same path, {self.reach.listed / largest}"
        )


CODE = frozenset(".py .pyx .sh .bash .c .cc .cpp .cu .cuh .h .jl .lua .r .R .rs".split())
"""Suffixes of code; data and results may change beside it."""
SETTINGS = frozenset(".yaml .yml .toml .json .cfg .ini".split())
"""Suffixes of settings, which are hashed if the file is small; large ones are data."""
_MOST_SETTINGS_BYTES = 1 << 20
_MOST_FILES = 5000
_MOST_BYTES = 8 << 20
_NOT_CODE = frozenset("__pycache__ node_modules site-packages venv".split())


def code_sha256(directory: Path, but: Path) -> tuple[str, int]:
    """Return the hash of the names and contents of the code below a directory, and its number of
    files.

    Settings files up to 1 MiB count as code, except menus, since a second one may be drafted.
    Excluded are hidden directories, links, and any folder that holds a campaign, whose files change
    with its trials.

    :param but: a directory to exclude: the campaign's.
    :raises SpecError: if there is too much code, or it cannot be read.
    """
    digest, count = hashlib.sha256(), 0
    try:
        for path in _code(directory, but):
            count += 1
            if count > _MOST_FILES:
                raise SpecError(
                    f"{directory} holds more than {_MOST_FILES:,} files of code; put the script "
                    "into a directory of its own"
                )
            with path.open("rb") as file:
                content = file.read(_MOST_BYTES)
            digest.update(f"{path.relative_to(directory)}\0{len(content)}\0".encode())
            digest.update(content)
    except OSError as error:
        raise SpecError(
            f"the script's directory {directory} cannot be read ({error.strerror}); bring it back"
        ) from error
    return digest.hexdigest(), count


def _code(directory: Path, but: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(directory):
        here = Path(parent)
        if here != directory and not CAMPAIGN_MARKS.isdisjoint(names):
            folders.clear()
            continue
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _NOT_CODE and (here / name).resolve() != but
        )
        for name in sorted(names):
            # before anything that reads the disk: there are many data files
            suffix = Path(name).suffix
            if suffix not in CODE and suffix not in SETTINGS:
                continue
            path = here / name
            if path.is_symlink() or not path.is_file():
                continue
            if suffix in CODE or _is_setting(path):
                yield path


def _is_setting(path: Path) -> bool:
    if path.stat().st_size > _MOST_SETTINGS_BYTES:
        return False
    is_menu = path.suffix == ".toml" and b"[trainer]" in path.read_bytes().split()
    return not is_menu
