"""Write a file for the user to keep."""

from __future__ import annotations

from pathlib import Path

from autoresearch.errors import AutoresearchError
from autoresearch.files import replace_file, writing


def write_new(path: Path, text: str, *, error: type[AutoresearchError]) -> None:
    """Write the whole file or nothing.

    :raises AutoresearchError: an ``error`` if the file exists with other content.
    """
    with writing(path, instead="choose another file"):
        if path.exists() and path.read_bytes() != text.encode():
            raise error(
                f"{path} exists already with other content; choose another file, or remove that one"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
