"""Read TOML files: shipped ones by name, others by path."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from autoresearch.errors import AutoresearchError
from autoresearch.files import read_given
from autoresearch.words import did_you_mean, json_text

MAX_FILE_BYTES = 1 << 20
MAX_DOTS = 64
"""Most dots between two commas of a line: the standard library's time for a dotted key grows with
the cube of its parts."""


@dataclass(frozen=True, slots=True)
class TomlFiles:
    """One kind of file, such as menus, shipped or a user's own."""

    noun: str
    """Noun for a file of this kind in messages: ``menu``."""
    package: str
    """Package whose folder ``shipped`` holds the shipped files."""
    error: type[AutoresearchError]
    """Error to raise for a file that cannot be read."""

    def names(self) -> list[str]:
        """Return the names of the shipped files, in order."""
        return sorted(
            file.name.removesuffix(".toml")
            for file in self._shipped().iterdir()
            if file.name.endswith(".toml")
        )

    def text(self, name_or_path: str) -> str:
        """Return the text of the shipped file of that name, else of the file at that path."""
        shipped = self.names()
        if name_or_path in shipped:
            return (self._shipped() / f"{name_or_path}.toml").read_text("utf-8")
        try:
            return read_given(Path(name_or_path).expanduser(), MAX_FILE_BYTES).decode("utf-8")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self.error(
                f"there is no {self.noun} {json_text(name_or_path)}"
                f"{did_you_mean(name_or_path, shipped)}; give a shipped {self.noun}'s name or the "
                "path of a TOML file"
            ) from error
        except (OSError, ValueError, RuntimeError) as error:
            reason = error.strerror or error if isinstance(error, OSError) else error
            raise self.error(
                f"{self.noun} {name_or_path} cannot be read: {reason}; give a TOML file in UTF-8 "
                f"of at most {MAX_FILE_BYTES:,} bytes"
            ) from error

    def _shipped(self) -> Traversable:
        return resources.files(self.package) / "shipped"

    def document(self, toml: str, source: str) -> dict[str, Any]:
        """Return the tables of a text that messages call ``source``."""
        # Number lists and prose have commas or few dots; keys have no commas.
        parts = [part for line in toml.splitlines() for part in line.split(",")]
        if any(part.count(".") > MAX_DOTS for part in parts):
            raise self.error(
                f"{self.noun} {source} has a key or a sentence of over {MAX_DOTS} dots; shorten it"
            )
        try:
            return tomllib.loads(toml)
        except (ValueError, RecursionError) as error:
            raise self.error(
                f"{self.noun} {source} is not readable TOML: {error}; fix it there"
            ) from error


def refuse_unknown(table: Iterable[str], keys: Iterable[str], what: str) -> None:
    """Refuse a table with a key that is none of ``keys``.

    :raises ValueError: naming the key and a similar known key.
    """
    keys = list(keys)
    for key in table:
        if key not in keys:
            raise ValueError(f"{what} has an unknown key {json_text(key)}{did_you_mean(key, keys)}")
