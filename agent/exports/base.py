"""Define what is exported and the result of an export."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.menu.files import ProxyMenu, menu_of
from autoresearch.errors import FormatError
from autoresearch.files import replacing
from autoresearch.layout import JOURNAL_FILE
from trajectory.formats.imported import ImportedCampaign
from trajectory.journal import read_rows
from trajectory.rows import CampaignRow, Row

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class Subject:
    """Campaign to export."""

    directory: Path
    foreign: ImportedCampaign | None
    """Another tool's measurements; None for a campaign of this tool."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows of a campaign of this tool, in the journal's order."""
        return read_rows(self.directory / JOURNAL_FILE)

    def campaign(self) -> CampaignRow:
        """Return the campaign's first row.

        :raises FormatError: if the journal is empty.
        """
        first = next(self.rows(), None)
        if not isinstance(first, CampaignRow):
            raise FormatError(
                f"{self.directory / JOURNAL_FILE} is empty; there is nothing to export"
            )
        return first

    def menu(self) -> ProxyMenu:
        """Return the menu of a campaign of this tool."""
        return menu_of(self.campaign())

    @property
    def name(self) -> str:
        """Name of the campaign's directory."""
        return self.directory.resolve().name


@dataclass(frozen=True, slots=True)
class Exported:
    """Count and place of what was written."""

    count: int
    of: str
    """Noun for what is counted: ``trials``."""
    where: str
    notes: tuple[str, ...] = ()
    """Names of what was left out, and the reasons."""


@contextmanager
def whole_file(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary file beside ``path`` that replaces it if the block succeeds.

    :raises FormatError: if ``path`` exists and may not be overwritten, or cannot be written.
    """
    if _SCHEME.match(str(path)) and not path.exists():
        raise FormatError(
            f"{path} is neither a path nor a complete URL; for a file with that name put ./ before "
            "it, for a database write sqlite:///PATH"
        )
    if path.exists() and not path.is_file():
        raise FormatError(f"{path} is a directory or a device; set --out to a file")
    if path.exists() and not overwrite:
        raise FormatError(f"{path} exists already; choose another --out, or add --overwrite")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            yield Path(file.name)
    except OSError as error:
        raise FormatError(
            f"{path} cannot be written: {error.strerror or error}; free some space, or choose "
            "another place with --out"
        ) from error


@contextmanager
def whole_database(where: str) -> Iterator[str]:
    """Yield a new SQLite file that becomes ``where`` if the block succeeds.

    An existing file, or whatever a URL names, is extended in place.

    :raises FormatError: as :func:`whole_file`.
    """
    if "://" in where or Path(where).is_file():
        yield where
        return
    with whole_file(Path(where), overwrite=False) as new:
        try:
            yield str(new)
        except FormatError as error:
            raise FormatError(str(error).replace(str(new), where)) from error
