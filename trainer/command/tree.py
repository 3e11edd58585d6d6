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
from pathlib import Path
from typing import IO

from autoresearch.errors import SpecError
from autoresearch.layout import CAMPAIGN_MARKS
from trainer.command.workspace import Reach
from trainer.schema import Command

MOST_BYTES = 256 << 20
"""Size limit of a directory that is sent: two seconds by 1 GbE. A larger directory holds data."""
_COMPILED = "__pycache__"


def pack(command: Command, trial_dir: Path, into: IO[bytes]) -> tuple[int, int]:
    """Write what a trial may read of the script's directory as a tar archive.

    Return how many files there are, and their bytes.

    :param trial_dir: the directory of a trial here; the archive omits its campaign.
    :raises SpecError: if the directory is too large or cannot be read.
    :raises SandboxError: if it holds more than a script and its data.
    """
    reach = Reach.of(command, trial_dir)
    declared = {os.path.realpath(named): named for named in command.reads}
    stays = reach.closed.union(map(str, reach.programs))
    sizes = Counter[str]()

    def sent(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        path = reach.listed / entry.name
        if str(path) in stays or path.name == _COMPILED:
            return None
        entry.mode |= 0o700 if entry.isdir() else 0o600  # the node edits and removes it
        real = Path(os.path.realpath(path))
        for place, named in declared.items():
            if real.is_relative_to(place):
                entry.type, entry.size = tarfile.SYMTYPE, 0
                entry.linkname = str(Path(named) / real.relative_to(place))
                return entry
        if entry.issym():
            entry.linkname = os.path.relpath(real, path.parent)
            return entry if real.is_relative_to(reach.listed) else None
        if entry.isdir():
            return entry
        if not path.is_file() or not os.access(path, os.R_OK):
            return None
        # A second name of a file is sent as a second file, since the first may stay.
        entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
        sizes[entry.name.split("/", 1)[0]] += entry.size
        if sizes.total() > MOST_BYTES:
            raise _too_large(reach.listed, sizes)
        return entry

    try:
        with tarfile.open(fileobj=into, mode="w") as archive:
            for path in sorted(reach.listed.iterdir()):
                archive.add(path, arcname=path.name, filter=sent)
            return sum(entry.isreg() for entry in archive.getmembers()), sizes.total()
    except OSError as error:
        raise SpecError(
            f"{error.filename or reach.listed}, of the script's directory, cannot be read"
            f" ({error.strerror or error}); run this again once no process writes there"
        ) from error


def _too_large(directory: Path, sizes: Counter[str]) -> SpecError:
    [(largest, _)] = sizes.most_common(1)
    return SpecError(
        f"the script's directory {directory} holds more than is sent to other machines, which is"
        f" {MOST_BYTES >> 20} MiB at most; the most is in {largest}: name what the script reads of"
        " it under [trainer] reads, and put that on every node under the same path,"
        f" {directory / largest}"
    )


def unpack(archive: Path, tree: Path) -> None:
    """Create the directory that was packed.

    :raises OSError: if the disk refuses.
    """
    tree.mkdir(parents=True)
    with tarfile.open(archive) as packed:
        packed.extractall(tree, filter="tar")  # links to declared paths are absolute


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
            is_data = suffix in SETTINGS and path.stat().st_size > _MOST_SETTINGS_BYTES
            if not is_data and not (
                suffix == ".toml" and b"[trainer]" in path.read_bytes().split()
            ):
                yield path
