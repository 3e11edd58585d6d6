"""A script's directory made ready to go to another machine: what of it a trial may read here, as a
list of names and hashes, and all contents behind it.

What goes along is what :class:`Reach` opens: no hidden files, no campaigns, no links that lead out.
What a menu declares under ``reads`` does not: it is to be on every machine under the same path, and
where it lies in the directory a link to that path goes in its place. Left here as well are folders
of an environment, and what Python compiles beside a script, which it makes anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from autoresearch.errors import SpecError
from autoresearch.values import Frozen, NonNegativeInt
from trainer.command.workspace import Reach
from trainer.spec import Command

MOST_BYTES = 256 << 20
"""Of a directory that is sent: two seconds by 1 GbE. What is larger is data."""
MOST_ENTRIES = 20_000
_PIECE_BYTES = 4 << 20
_COMPILED = "__pycache__"


def _within(path: str) -> str:
    pure = PurePosixPath(path)
    if pure.is_absolute() or not pure.parts or ".." in pure.parts or str(pure) != path:
        raise ValueError(f"{path!r} is no path below a directory")
    return path


Below = Annotated[str, AfterValidator(_within)]
"""A path below the script's directory."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TreeFile(Frozen):
    """A file, by what is in it."""

    path: Below
    sha256: Sha256
    size_bytes: NonNegativeInt
    runs: bool
    """It may be run as a program."""


class TreeLink(Frozen):
    """A link: to a path below the directory, or to what the menu declares, which is absolute."""

    path: Below
    target: str


class Manifest(Frozen):
    """All that a directory holds. Its own hash is what the directory is called elsewhere."""

    folders: tuple[Below, ...]
    """Each after the one it lies in."""
    files: tuple[TreeFile, ...]
    """In the order of their contents."""
    links: tuple[TreeLink, ...]

    def encoded(self) -> bytes:
        """What is sent, and hashed."""
        return self.model_dump_json().encode()


@dataclass(frozen=True, slots=True)
class Tree:
    """A directory that can be sent."""

    directory: Path
    manifest: Manifest
    sha256: str

    def contents(self) -> Iterator[bytes]:
        """All files, one behind the other, in pieces of 4 MiB at most; of what has grown since, as
        much as there was of it.

        :raises SpecError: where one cannot be read any more.
        """
        gathered = bytearray()
        for file in self.manifest.files:
            for piece in _pieces(self.directory / file.path, file.size_bytes):
                gathered += piece
                while len(gathered) >= _PIECE_BYTES:
                    yield bytes(gathered[:_PIECE_BYTES])
                    del gathered[:_PIECE_BYTES]
        if gathered:
            yield bytes(gathered)


@dataclass
class _Found:
    folders: list[str]
    files: list[tuple[str, os.stat_result]]
    links: list[TreeLink]
    size_bytes: int = 0


class Trees:
    """Makes trees of one directory after another; what did not change is not hashed twice."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def of(self, command: Command, trial_dir: Path) -> Tree:
        """The directory of a command's script as it is now.

        :param trial_dir: of a trial here: its campaign does not go along.
        :raises SpecError: where there is too much of it, or it cannot be read.
        :raises SandboxError: where it holds more than a script and its data.
        """
        directory, found = _looked_through(command, trial_dir)
        files = tuple(self._file(directory, path, stat) for path, stat in found.files)
        manifest = Manifest(folders=tuple(found.folders), files=files, links=tuple(found.links))
        return Tree(directory, manifest, hashlib.sha256(manifest.encoded()).hexdigest())

    def _file(self, directory: Path, path: str, stat: os.stat_result) -> TreeFile:
        mark = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        known, sha256 = self._known.get(path, ((), ""))
        size_bytes = stat.st_size
        if known != mark:
            digest, size_bytes = hashlib.sha256(), 0
            for piece in _pieces(directory / path, stat.st_size):
                digest.update(piece)
                size_bytes += len(piece)
            sha256 = digest.hexdigest()
            if size_bytes == stat.st_size:  # else it was just cut
                self._known[path] = (mark, sha256)
        runs = bool(stat.st_mode & 0o100)
        return TreeFile(path=path, sha256=sha256, size_bytes=size_bytes, runs=runs)


def weigh(command: Command, trial_dir: Path) -> tuple[int, int]:
    """How many files would go to other machines, and how many bytes they have.

    :raises SpecError: see :meth:`Trees.of`.
    :raises SandboxError: likewise.
    """
    _, found = _looked_through(command, trial_dir)
    return len(found.files), found.size_bytes


def _looked_through(command: Command, trial_dir: Path) -> tuple[Path, _Found]:
    reach = Reach.of(command, trial_dir)
    declared, found = _declared(command), _Found([], [], [])
    left = [str(reach.listed)]
    while left:
        folder = left.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    if entry.path not in reach.closed and entry.name != _COMPILED:
                        _take(entry, reach, declared, found, left)
        except OSError as error:
            raise SpecError(
                f"{folder}, of the script's directory, cannot be read ({error.strerror}); run this"
                " again once nobody writes there"
            ) from error
        _refuse_too_large(reach.listed, found)
    found.folders.sort(key=lambda path: path.split("/"))
    found.files.sort(key=lambda one: one[0])
    found.links.sort(key=lambda link: link.path)
    return reach.listed, found


def _declared(command: Command) -> dict[str, str]:
    """What the menu reads, by where that is: its place, and where a link there leads."""
    paths = [Path(named) for named in command.reads]
    ends = {str(path.resolve()): str(path) for path in paths}
    return {**ends, **{str(path.parent.resolve() / path.name): str(path) for path in paths}}


def _take(
    entry: os.DirEntry[str],
    reach: Reach,
    declared: dict[str, str],
    found: _Found,
    left: list[str],
) -> None:
    path = entry.path.removeprefix(f"{reach.listed}/")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise SpecError(
            f"{path!r} in the script's directory is no name in UTF-8, and cannot be sent to another"
            " machine; rename it"
        ) from error
    if entry.path in declared:
        found.links.append(TreeLink(path=path, target=declared[entry.path]))
    elif entry.is_symlink():
        target = _target(Path(entry.path), reach, declared)
        if target:
            found.links.append(TreeLink(path=path, target=target))
    elif entry.is_dir():
        if Path(entry.path) not in reach.programs:
            found.folders.append(path)
            left.append(entry.path)
    elif entry.is_file() and os.access(entry.path, os.R_OK):
        found.files.append((path, entry.stat()))
        found.size_bytes += entry.stat().st_size


def _target(link: Path, reach: Reach, declared: dict[str, str]) -> str:
    """Where a link leads that goes along; empty of one that stays here."""
    real = Path(os.path.realpath(link))
    for place, named in declared.items():
        if real.is_relative_to(place):
            return str(Path(named) / real.relative_to(place))
    if not real.is_relative_to(reach.listed) or real == reach.listed or not reach.opens(real):
        return ""
    return os.path.relpath(real, os.path.realpath(link.parent))


def _refuse_too_large(directory: Path, found: _Found) -> None:
    count = len(found.files) + len(found.folders) + len(found.links)
    is_heavy = found.size_bytes > MOST_BYTES
    if not is_heavy and count <= MOST_ENTRIES:
        return
    by_top: dict[str, int] = {}
    for path, stat in found.files:
        top = path.split("/", 1)[0]
        by_top[top] = by_top.get(top, 0) + (stat.st_size if is_heavy else 1)
    largest = max(by_top, key=by_top.__getitem__, default="data")
    raise SpecError(
        f"the script's directory {directory} holds more than is sent to other machines, which is"
        f" {MOST_BYTES >> 20} MiB in {MOST_ENTRIES:,} files and folders at most; the most is in"
        f" {largest}: name what the script reads of it under [trainer] reads, and put that on every"
        f" node under the same path, {directory / largest}"
    )


def _pieces(path: Path, most_bytes: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while piece := file.read(min(_PIECE_BYTES, most_bytes)):
                most_bytes -= len(piece)
                yield piece
    except OSError as error:
        raise SpecError(
            f"{path}, of the script's directory, cannot be read ({error.strerror}); run this again"
            " once nobody writes there"
        ) from error
