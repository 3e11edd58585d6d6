"""A file to import, line by line, and what reading it gives."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from trainer.spec import explain
from trajectory.errors import FormatError
from trajectory.formats.foreign import ForeignRun, FormatName, Measure, Skipped

_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)
_EXCERPT = 60
_WHY_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank."""

    number: int
    """1 for the first of the file."""
    raw: bytes
    """Without its newline."""

    def text(self) -> str:
        """
        :raises ValueError: where it is not UTF-8.
        """
        return self.raw.decode("utf-8-sig" if self.number == 1 else "utf-8")

    def json_object(self) -> dict[str, Any]:
        """
        :raises ValueError: where it is no JSON object.
        """
        try:
            value = _JSON.validate_json(self.text())
        except ValidationError as error:
            raise ValueError(f"it is no JSON ({shown(self.raw)})") from error
        if not isinstance(value, dict):
            raise ValueError(f"it is no JSON object ({shown(self.raw)})")  # noqa: TRY004
        return value


@dataclass(frozen=True, slots=True)
class Source:
    """A file read whole: what is imported, and its hash, are of one moment."""

    path: Path
    data: bytes

    @classmethod
    def read(cls, path: Path) -> Source:
        """
        :raises FormatError: where it cannot be read.
        """
        try:
            return cls(path, path.read_bytes())
        except OSError as error:
            raise FormatError(
                f"{path} cannot be imported: {error.strerror or error}; name a file that can be "
                "read, or a campaign's directory"
            ) from error

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def lines(self) -> Iterator[Line]:
        """Every line that is not blank."""
        for number, raw in enumerate(self.data.split(b"\n"), start=1):
            if raw.strip():
                yield Line(number, raw.rstrip(b"\r"))


@dataclass(slots=True)
class ForeignFile:
    """What a reader found in a file of another tool."""

    format: FormatName
    measure: Measure
    accept_delta_frac: float | None = None
    runs: list[ForeignRun] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def take(self, line: Line, read: Callable[[], ForeignRun | None]) -> None:
        """Add the run that ``read`` makes of a line, or say why there is none.

        None is a line with nothing in it to keep.
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
        """Report a line that is not taken in."""
        self.skipped.append(Skipped(line=line.number, why=why[:_WHY_CHARACTERS]))


def shown(raw: bytes) -> str:
    """The beginning of a line, fit to print."""
    text = ascii(raw.decode("utf-8", "replace"))
    return text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 3]}..."
