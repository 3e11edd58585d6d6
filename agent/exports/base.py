"""What is exported, and what came of it."""

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
    """The campaign to export."""

    directory: Path
    foreign: ImportedCampaign | None
    """What another tool measured; None for one of our campaigns."""

    def rows(self) -> Iterator[Row]:
        """The rows of one of our campaigns, in the journal's order."""
        return read_rows(self.directory / JOURNAL_FILE)

    def campaign(self) -> CampaignRow:
        """
        :raises FormatError: where the journal is empty.
        """
        first = next(self.rows(), None)
        if not isinstance(first, CampaignRow):
            raise FormatError(f"{self.directory / JOURNAL_FILE} is empty; there is nothing in it")
        return first

    def menu(self) -> ProxyMenu:
        """The menu of one of our campaigns."""
        return menu_of(self.campaign())

    @property
    def name(self) -> str:
        """The directory's own."""
        return self.directory.resolve().name


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    count: int
    of: str
    """What is counted: ``trials``."""
    where: str
    notes: tuple[str, ...] = ()
    """What was left out, and why."""


@contextmanager
def whole_file(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """A file beside ``path`` that becomes it when all went well.

    :raises FormatError: where ``path`` is there and may not be overwritten, or cannot be written.
    """
    if _SCHEME.match(str(path)) and not path.exists():
        raise FormatError(
            f"{path} is neither a path nor a whole URL; for a file with that name put ./ before "
            "it, for a database write sqlite:///PATH"
        )
    if path.exists() and not path.is_file():
        raise FormatError(f"{path} is a directory or a device; name a file with --out")
    if path.exists() and not overwrite:
        raise FormatError(f"{path} is there already; name another --out, or add --overwrite")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            yield Path(file.name)
    except OSError as error:
        raise FormatError(
            f"{path} cannot be written: {error.strerror or error}; free some space, or name "
            "another place with --out"
        ) from error


@contextmanager
def whole_database(where: str) -> Iterator[str]:
    """A new SQLite file that becomes ``where`` when all went well; what is there already, and
    whatever a URL names, is added to where it is.

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
