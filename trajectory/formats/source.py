"""Read a file to import, line by line."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from autoresearch.campaign_files import read_file
from autoresearch.errors import FormatError
from autoresearch.files import read_given
from autoresearch.values import explain
from trajectory.formats.foreign import ForeignRun, FormatName, Measure, Skipped

_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)
_EXCERPT = 60
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
MOST_BYTES = 1 << 30
"""Size limit of a file to import: over 300,000 iterations."""
MOST_LINE_BYTES = 4 << 20
MOST_LINES = 100_000
"""Most nonblank lines in another tool's file."""
MOST_SKIPPED = 1000
"""Most lines to skip; a file with more is not a trajectory."""
_WHY_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Line:
    """One nonblank line."""

    number: int
    """Number of the line in the file; 1 for the first."""
    raw: bytes
    """The line without its newline."""

    def text(self) -> str:
        """Return the line decoded.

        :raises ValueError: if it is not UTF-8.
        """
        try:
            return self.raw.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"it is not UTF-8 ({_excerpt(self.raw)})") from error

    def json_object(self) -> dict[str, Any]:
        """Parse the line as a JSON object.

        :raises ValueError: if it is not one.
        """
        try:
            value = _JSON.validate_json(self.text())
        except ValidationError as error:
            raise ValueError(f"it is not JSON ({_excerpt(self.raw)})") from error
        if not isinstance(value, dict):
            raise ValueError(f"it is not a JSON object ({_excerpt(self.raw)})")  # noqa: TRY004
        return value


@dataclass(frozen=True, slots=True)
class Source:
    """The whole contents of a file, read at once, so that the data and its hash agree."""

    path: Path
    data: bytes

    @classmethod
    def read(cls, path: Path) -> Source:
        """Read a file.

        :raises FormatError: if it cannot be read, or its size or encoding rules out a trajectory.
        """
        return cls._of(path, lambda: read_given(path, MOST_BYTES))

    @classmethod
    def read_in(cls, directory: Path, name: str) -> Source:
        """Read a file of a campaign.

        :raises FormatError: as :meth:`read`.
        """
        return cls._of(directory / name, lambda: read_file(directory, name, MOST_BYTES))

    @classmethod
    def _of(cls, path: Path, read: Callable[[], bytes]) -> Source:
        try:
            data = read()
        except OSError as error:
            raise FormatError(
                f"{path} cannot be imported: {error.strerror or error}; give a file of at most "
                f"{MOST_BYTES >> 30} GiB that can be read, or a campaign's directory"
            ) from error
        if not data.strip():
            raise FormatError(f"{path} is empty; choose another file")
        if data.startswith(_UTF_16):
            raise FormatError(f"{path} is text in UTF-16; save it as UTF-8 and import that")
        return cls(path, data)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def lines(self, most: int = MOST_LINES) -> Iterator[Line]:
        """Yield each nonblank line, without a UTF-8 byte order mark.

        :raises FormatError: at a line longer than :data:`MOST_LINE_BYTES`, or after ``most`` lines.
        """
        read = 0
        for number, line in enumerate(io.BytesIO(self.data.removeprefix(_BOM)), start=1):
            raw = line.rstrip(b"\r\n")
            if len(raw) > MOST_LINE_BYTES:
                raise FormatError(
                    f"line {number} of {self.path} is longer than {MOST_LINE_BYTES >> 20} MiB, the "
                    "most that is read; shorten or remove it"
                )
            if not raw.strip():
                continue
            read += 1
            if read > most:
                raise FormatError(
                    f"{self.path} has more than {most:,} lines, more than is read; import a part "
                    "of it"
                )
            yield Line(number, raw)


@dataclass(frozen=True, slots=True)
class SourcePart:
    """Name the part of a source to read, if it holds more than one score or search."""

    metric: str | None = None
    study: str | None = None
    """Name of an Optuna study or an MLflow experiment."""


@dataclass(slots=True)
class ForeignFile:
    """The runs that a reader found in another tool's file, and the lines it skipped."""

    format: FormatName
    measure: Measure
    runs: list[ForeignRun] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def take(self, line: Line, read: Callable[[], ForeignRun | None]) -> None:
        """Add the run that ``read`` makes of a line, or record why it fails.

        ``read`` returns None for a line with nothing to keep.
        """
        try:
            run = read()
        except ValidationError as error:
            self.skip(line, explain(error))
        except ValueError as error:
            self.skip(line, str(error))
        else:
            if run is not None:
                self.runs.append(run)

    def skip(self, line: Line, why: str) -> None:
        """Record a line that is not imported.

        :raises FormatError: if there are more than :data:`MOST_SKIPPED`.
        """
        if len(self.skipped) == MOST_SKIPPED:
            raise FormatError(
                f"more than {MOST_SKIPPED:,} lines cannot be read, up to line {line.number} "
                f"({why[:_WHY_CHARACTERS]}); give a trajectory"
            )
        self.skipped.append(Skipped(line=line.number, why=why[:_WHY_CHARACTERS]))


def _excerpt(raw: bytes) -> str:
    """Return the beginning of a line, escaped for printing."""
    text = ascii(raw.decode("utf-8", "replace"))
    return text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 3]}..."
