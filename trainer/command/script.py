"""The code of a script's directory, as one number: a campaign does not change its ruler, and here
the script is it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from autoresearch.errors import SpecError
from autoresearch.layout import CAMPAIGN_MARKS

CODE = frozenset(".py .pyx .sh .bash .c .cc .cpp .cu .cuh .h .jl .lua .r .R .rs".split())
"""Suffixes of what is taken for code: data and results may come and go beside it."""
SETTINGS = frozenset(".yaml .yml .toml .json .cfg .ini".split())
"""Suffixes of what a script may be set by, and hashed where it is small: large ones are data."""
_MOST_SETTINGS_BYTES = 1 << 20
_MOST_FILES = 5000
_MOST_BYTES = 8 << 20
_NOT_CODE = frozenset("__pycache__ node_modules site-packages venv".split())


def code_sha256(directory: Path, but: Path) -> tuple[str, int]:
    """Of the names and contents of the code below a directory, and how many files that is.

    Files of settings up to 1 MiB count as code, but for menus: a second one may be drafted. Left
    out are hidden directories, links, and any folder that holds a campaign: what its trials leave
    comes and goes.

    :param but: a directory that is left out with all in it: the campaign's.
    :raises SpecError: where there is too much of it, or it cannot be read.
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
            suffix = Path(name).suffix  # before anything that asks the disk: data are many
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
