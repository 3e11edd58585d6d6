"""Hash the code of a script's directory: it is part of a command's evaluation protocol, which a
campaign does not change."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from autoresearch.errors import SpecError
from autoresearch.layout import CAMPAIGN_MARKS

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
