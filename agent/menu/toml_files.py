"""Read TOML files: shipped ones by name, others by path."""

import errno
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
        raw = self._read(name_or_path, shipped)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(
                f"{self.noun} {name_or_path} is not UTF-8 (byte {error.start} is "
                f"{raw[error.start]:#04x}); save it as UTF-8"
            ) from error

    def _shipped(self) -> Traversable:
        return resources.files(self.package) / "shipped"

    def document(self, toml: str, source: str) -> dict[str, Any]:
        """Return the tables of a text that messages call ``source``."""
        try:
            _refuse_long_keys(toml)
            return tomllib.loads(toml)
        except (ValueError, RecursionError) as error:
            raise self.error(
                f"{self.noun} {source} is not readable TOML: {error}; fix it there"
            ) from error

    def _read(self, path: str, shipped: list[str]) -> bytes:
        try:
            return read_given(Path(path).expanduser(), MAX_FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self.error(
                f"there is no {self.noun} {json_text(path)}{did_you_mean(path, shipped)}; give a "
                f"shipped {self.noun}'s name or the path of a TOML file"
            ) from error
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise self.error(
                    f"{self.noun} {path} is larger than {MAX_FILE_BYTES:,} bytes; a "
                    f"{self.noun} is a few kilobytes of TOML: is this the right file?"
                ) from error
            raise self._unreadable(path, error.strerror or error) from error
        except (ValueError, RuntimeError) as error:
            raise self._unreadable(path, error) from error

    def _unreadable(self, path: str, reason: object) -> AutoresearchError:
        return self.error(f"{self.noun} {path} cannot be read: {reason}; give a TOML file")


def _refuse_long_keys(toml: str) -> None:
    for number, line in enumerate(toml.splitlines(), start=1):
        # Number lists and prose have commas or few dots; keys have no commas.
        if line.count(".") > MAX_DOTS and any(p.count(".") > MAX_DOTS for p in line.split(",")):
            raise ValueError(f"line {number} has a key or a sentence of over {MAX_DOTS} dots")


def refuse_unknown(table: Iterable[str], keys: Iterable[str], what: str) -> None:
    """Refuse a table with a key that is none of ``keys``.

    :raises ValueError: naming the key and a similar known key.
    """
    keys = list(keys)
    for key in table:
        if key not in keys:
            raise ValueError(f"{what} has an unknown key {json_text(key)}{did_you_mean(key, keys)}")
