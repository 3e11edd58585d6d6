"""``trajectory.jsonl``: the truth of a campaign, one row a line, appended and never changed.

A record exists once its line is whole. What a power cut may leave at the end, a piece of a line or
a line of zeros, was never reported as written: readers pass over it and :class:`Journal` cuts it
away before anything is appended, keeping a copy. Damage anywhere else is an error that names the
line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from autoresearch.closing import Closing
from autoresearch.errors import JournalError, MachineryError
from autoresearch.files import sync_directory
from autoresearch.values import explain
from trajectory.rows import SCHEMA, CampaignRow, Row, dump_row, parse_row

_BLOCK = 1 << 16
_EXCERPT = 60


@dataclass(frozen=True, slots=True)
class Record:
    """A row and where it lies."""

    line: int
    """1 for the first."""
    end: int
    """Bytes of the journal up to and including this line."""
    raw: bytes
    """The line as stored, its newline included; only a file's last line may lack one."""
    row: Row


class Journal(Closing):
    """A journal open for appending. Its caller holds the campaign's lock.

    After a failed append nothing of the row is in the file, and the next append is as good as any.
    """

    def __init__(self, path: Path) -> None:
        """Open or create it, and mend what a power cut left at its end.

        :raises MachineryError: where it cannot be opened or mended.
        """
        self.path = path
        self.repaired: str | None = None
        """One sentence on what had to be cut away on opening; None where nothing had."""
        self._failed = False
        """Whether an append may have left a piece of its line behind."""
        try:
            self._descriptor = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise _machinery("open", path, error) from error
        try:
            sync_directory(path.parent)
            self.end = self._mend()
        except OSError as error:
            os.close(self._descriptor)
            raise _machinery("mend the end of", path, error) from error

    def rows(self) -> Iterator[Row]:
        """Every row from the first, read as they are asked for.

        :raises JournalError: at a damaged line.
        """
        return read_rows(self.path)

    def append(self, row: Row) -> int:
        """Write one row and see it onto the disk.

        :return: the size of the journal now, in bytes.
        :raises MachineryError: when it cannot be written; the journal is as it was before.
        :raises JournalError: when another process has written to it.
        """
        line = dump_row(row).encode() + b"\n"
        try:
            self._take_back_what_failed()
            self._expect_no_other_writer()
            self._failed = True
            _write_all(self._descriptor, line)
            os.fsync(self._descriptor)
        except OSError as error:
            with suppress(OSError):  # the next append tries again
                self._take_back_what_failed()
            raise _machinery("append to", self.path, error) from error
        self._failed = False
        self.end += len(line)
        return self.end

    def close(self) -> None:
        """Close it; harmless when it is closed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take_back_what_failed(self) -> None:
        if self._failed:
            os.ftruncate(self._descriptor, self.end)
            self._failed = False

    def _expect_no_other_writer(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size != self.end:
            raise JournalError(
                f"{self.path} has {size} bytes where this process left {self.end}: something else "
                "writes it; stop that and resume the campaign"
            )

    def _mend(self) -> int:
        """Make the file end with a whole line; its size then.

        Empty lines at the end, as an editor leaves, go with a torn one; with them left, a row that
        is appended would stand behind damage.
        """
        size = os.fstat(self._descriptor).st_size
        start, end = self._last_line(size)
        last = _read_at(self._descriptor, start, end - start)
        if end == size and (not last or (last.endswith(b"\n") and _is_json(last))):
            return size
        if end == size and _is_json(last):
            _write_all(self._descriptor, b"\n")
            os.fsync(self._descriptor)
            return size + 1
        whole = not last or _is_json(last)
        cut = end if whole else start
        self._expect_a_row_before(cut)
        copy = _save_torn(self.path, _read_at(self._descriptor, cut, size - cut))
        os.ftruncate(self._descriptor, cut)
        os.fsync(self._descriptor)
        self.repaired = (
            f"the last {size - cut} bytes of {self.path} were "
            f"{'empty lines' if whole else 'a torn line, as a power cut leaves'}; "
            f"they were cut away and kept in {copy.name}"
        )
        return cut

    def _expect_a_row_before(self, end: int) -> None:
        """
        :raises JournalError: where more than one line is torn: that was no power cut.
        """
        start, end = self._last_line(end)
        if end and not _is_json(_read_at(self._descriptor, start, end - start)):
            raise JournalError(
                f"the last lines of {self.path} are no rows; restore the file from a copy, or move "
                "them out of it by hand"
            )

    def _last_line(self, size: int) -> tuple[int, int]:
        """Where the last line that is not empty begins and ends; 0 and 0 where there is none."""
        end = size
        while end:
            start = _start_of_last_line(self._descriptor, end)
            if _read_at(self._descriptor, start, end - start).strip():
                return start, end
            end = start
        return 0, 0


def read_rows(path: Path) -> Iterator[Row]:
    """Every row of a journal, in order, passing over a torn last line.

    A journal that does not exist has no rows.

    :raises JournalError: at a damaged line, naming it.
    :raises MachineryError: where the file cannot be read.
    """
    for record in read_records(path):
        yield record.row


def read_records(path: Path, *, offset: int = 0, line: int = 0) -> Iterator[Record]:
    """The rows that begin at byte ``offset``, after ``line`` lines; see :func:`read_rows`."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            lines = iter(file)
            raw = next(lines, b"")
            while raw:
                following = next(lines, b"")
                line += 1
                offset += len(raw)
                if not (following and raw.endswith(b"\n")) and not _is_json(raw):
                    return
                yield Record(line, offset, raw, _parse(path, line, raw))
                raw = following
    except FileNotFoundError:
        return
    except OSError as error:
        raise _machinery("read", path, error) from error


def batches(records: Iterable[Record], *, rows: int, size: int) -> Iterator[list[Record]]:
    """The records in lists of at most ``rows``, each ended early once it holds ``size`` bytes."""
    batch: list[Record] = []
    held = 0
    for record in records:
        batch.append(record)
        held += len(record.raw)
        if len(batch) >= rows or held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _parse(path: Path, line: int, raw: bytes) -> Row:
    if line == 1:
        _check_schema(path, raw)
    try:
        row = parse_row(raw.rstrip())  # or the line's end counts as a second line
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] == "union_tag_invalid":
            why = "is of a kind that this version does not know"
            mend = "install the autoresearch that wrote it, or a newer one"
        else:
            why = "is not a row"
            mend = "restore the file from a copy, or move that line out of it by hand"
        raise JournalError(
            f"line {line} of {path} {why} ({explain(error)[:300]}); {mend}"
        ) from error
    if (line == 1) != isinstance(row, CampaignRow):
        expected = "not a campaign row" if line == 1 else "a second campaign row"
        raise JournalError(
            f"line {line} of {path} is {expected} (kind {row.kind!r}), and a journal has one, in "
            "its first line; restore the file from a copy"
        )
    return row


def _check_schema(path: Path, raw: bytes) -> None:
    try:
        first = json.loads(raw)
    except ValueError:
        return
    schema = first.get("schema") if isinstance(first, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise JournalError(
            f"{path} was written with row format {schema} and this version reads up to {SCHEMA}; "
            "install the autoresearch that wrote it, or a newer one"
        )


def _is_json(raw: bytes) -> bool:
    """Whether this is a whole line. No piece of a JSON object is itself JSON."""
    try:
        json.loads(raw)
    except ValueError:
        return False
    return True


def _start_of_last_line(descriptor: int, size: int) -> int:
    """Offset of the last line, which may or may not end with a newline."""
    end = max(size - 1, 0)
    while end > 0:
        start = max(end - _BLOCK, 0)
        newline = _read_at(descriptor, start, end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _read_at(descriptor: int, offset: int, length: int) -> bytes:
    pieces = []
    while length > 0:
        piece = os.pread(descriptor, length, offset)
        if not piece:
            break
        pieces.append(piece)
        offset += len(piece)
        length -= len(piece)
    return b"".join(pieces)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _save_torn(path: Path, torn: bytes) -> Path:
    """Keep what is cut away, beside the journal."""
    number = 1
    while (copy := path.with_name(f"{path.name}.torn-{number}")).exists():
        number += 1
    try:
        with copy.open("xb") as file:
            file.write(torn)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            copy.unlink()
        raise
    return copy


def _machinery(what: str, path: Path, error: OSError) -> MachineryError:
    return MachineryError(
        f"cannot {what} {path} ({error.strerror}); "
        "check the disk's free space, its health and the file's permissions, then resume"
    )
