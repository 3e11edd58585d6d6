"""Read and append to ``trajectory.jsonl``, the authoritative record of a campaign.

The file has one row per line; rows are appended and never changed. A record exists once its line is
complete. A power failure may leave a partial line or a line of zeros at the end, which was never
reported as written. Readers skip it; :class:`Journal` removes it before the first append and keeps
a copy. Damage anywhere else is an error that names the line.

A journal may come from somebody else, so it is opened as :mod:`autoresearch.campaign_files`
describes, and its size and each line's are limited.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple

from pydantic import ValidationError

from autoresearch import campaign_files
from autoresearch.closing import Closing
from autoresearch.errors import JournalError, MachineryError
from autoresearch.files import read_at, write_all
from autoresearch.values import explain
from trajectory.rows import SCHEMA, CampaignRow, Row, dump_row, parse_row

MOST_BYTES = 8 << 30
"""Largest journal that is read: a row has a few kilobytes."""
MOST_LINE_BYTES = 64 << 20
_BLOCK = 1 << 16
_EXCERPT = 60


class Record(NamedTuple):
    """A row and its position in the journal."""

    line: int
    """Number of the line; 1 for the first."""
    end: int
    """Size of the journal in bytes, up to and including this line."""
    raw: bytes
    """The line as stored, with its newline; only a file's last line may lack one."""
    row: Row


class Journal(Closing):
    """A journal open for appending. The caller holds the campaign's lock.

    After a failed append the file holds nothing of that row, and the next append can succeed.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the journal, and repair its end after a power failure.

        :raises MachineryError: if it cannot be opened or repaired.
        """
        self.path = path
        self.repaired: str | None = None
        """One sentence on what was removed when the journal was opened; None if nothing was."""
        self._failed = False
        """Whether a failed append may have left part of its line in the file."""
        try:
            self._descriptor = campaign_files.open_file(
                path.parent, path.name, os.O_RDWR | os.O_CREAT | os.O_APPEND
            )
        except OSError as error:
            raise _machinery("open", path, error) from error
        try:
            campaign_files.sync_folder(path.parent)
            self.end = self._repair_end()
        except OSError as error:
            os.close(self._descriptor)
            raise _machinery("repair the end of", path, error) from error
        except JournalError:
            os.close(self._descriptor)
            raise

    def rows(self) -> Iterator[Row]:
        """Return an iterator over all rows, which reads each row on demand.

        :raises JournalError: at a damaged line.
        """
        return read_rows(self.path)

    def append(self, row: Row) -> int:
        """Write one row and sync it to disk.

        :return: the new size of the journal in bytes.
        :raises MachineryError: if the row cannot be written; the journal is then unchanged.
        :raises JournalError: if another process has written to the journal.
        """
        line = dump_row(row).encode() + b"\n"
        try:
            self._undo_failed_append()
            size = os.fstat(self._descriptor).st_size
            if size != self.end:
                raise JournalError(
                    f"{self.path} has {size} bytes where this process left {self.end}: something "
                    "else writes it; stop that and resume the campaign"
                )
            self._failed = True
            write_all(self._descriptor, line)
            os.fsync(self._descriptor)
        except OSError as error:
            with suppress(OSError):  # the next append tries again
                self._undo_failed_append()
            raise _machinery("append to", self.path, error) from error
        self._failed = False
        self.end += len(line)
        return self.end

    def close(self) -> None:
        """Close the journal; calling it again is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _undo_failed_append(self) -> None:
        if self._failed:
            os.ftruncate(self._descriptor, self.end)
            self._failed = False

    def _repair_end(self) -> int:
        """Make the file end with a complete line and return its size.

        :raises JournalError: if more than one line is torn.
        """
        size = os.fstat(self._descriptor).st_size
        if size > MOST_BYTES:
            raise _too_long(self.path)
        start = _start_of_last_line(self._descriptor, size)
        if size - start > MOST_LINE_BYTES:
            raise _too_long(self.path)
        last = read_at(self._descriptor, start, size - start)
        if not last or _is_json(last):
            if last and not last.endswith(b"\n"):
                write_all(self._descriptor, b"\n")
                os.fsync(self._descriptor)
                return size + 1
            return size
        before = _start_of_last_line(self._descriptor, start)
        if start - before > MOST_LINE_BYTES:
            raise _too_long(self.path)
        if start and not _is_json(read_at(self._descriptor, before, start - before)):
            # A power failure tears one line only.
            raise JournalError(
                f"the last lines of {self.path} are not rows; restore the file from a copy, or "
                "move them out of it by hand"
            )
        copy = _save_torn(self.path, last)
        os.ftruncate(self._descriptor, start)
        os.fsync(self._descriptor)
        self.repaired = (
            f"the last {len(last)} bytes of {self.path} were a torn line, as a power cut leaves; "
            f"they were cut away and kept in {copy.name}"
        )
        return start


def read_rows(path: Path) -> Iterator[Row]:
    """Yield every row of a journal in order, skipping a torn last line.

    A journal that does not exist has no rows.

    :raises JournalError: at a damaged line, which the error names.
    :raises MachineryError: if the file cannot be read.
    """
    for record in read_records(path):
        yield record.row


def read_records(path: Path, *, offset: int = 0, line: int = 0) -> Iterator[Record]:
    """Yield the records from byte ``offset`` on, after ``line`` lines; see :func:`read_rows`."""
    try:
        with open_journal(path) as file:
            yield from records_of(file, path, offset=offset, line=line)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _machinery("read", path, error) from error


def records_of(file: IO[bytes], path: Path, *, offset: int = 0, line: int = 0) -> Iterator[Record]:
    """Yield the records of an open journal, which ``path`` names in errors."""
    file.seek(offset)
    raw = file.readline(MOST_LINE_BYTES + 1)
    while raw:
        if len(raw) > MOST_LINE_BYTES:
            raise _too_long(path)
        following = file.readline(MOST_LINE_BYTES + 1)
        line += 1
        offset += len(raw)
        if not (following and raw.endswith(b"\n")) and not _is_json(raw):
            return
        yield Record(line, offset, raw, _parse(path, line, raw))
        raw = following


def open_journal(path: Path) -> BinaryIO:
    """Open a journal to read it.

    :raises OSError: if it is no plain file in its directory.
    :raises JournalError: if it is larger than any loop writes.
    """
    file = os.fdopen(campaign_files.open_file(path.parent, path.name), "rb")
    if os.fstat(file.fileno()).st_size > MOST_BYTES:
        file.close()
        raise _too_long(path)
    return file


def _parse(path: Path, line: int, raw: bytes) -> Row:
    if line == 1:
        first = None
        with suppress(ValueError, RecursionError):
            first = json.loads(raw)
        schema = first.get("schema") if isinstance(first, dict) else None
        if isinstance(schema, int) and schema > SCHEMA:
            raise JournalError(
                f"{path} was written with row format {schema} and this version reads up to "
                f"{SCHEMA}; install the autoresearch that wrote it, or a newer one"
            )
    try:
        row = parse_row(raw.rstrip())  # pydantic counts the line's end as a second line
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] == "union_tag_invalid":
            why = "is of a kind that this version does not know"
            fix = "install the autoresearch that wrote it, or a newer one"
        else:
            why = "is not a row"
            fix = "restore the file from a copy, or move that line out of it by hand"
        raise JournalError(
            f"line {line} of {path} {why} ({explain(error)[:300]}); {fix}"
        ) from error
    if (line == 1) != isinstance(row, CampaignRow):
        expected = "not a campaign row" if line == 1 else "a second campaign row"
        raise JournalError(
            f"line {line} of {path} is {expected} (kind {row.kind!r}), and a journal has one, in "
            "its first line; restore the file from a copy"
        )
    return row


def _is_json(raw: bytes) -> bool:
    """Return whether this is a complete line: no part of a JSON object is valid JSON."""
    try:
        json.loads(raw)
    except (ValueError, RecursionError):  # no row is nested so deeply
        return False
    return True


def _start_of_last_line(descriptor: int, size: int) -> int:
    """Return the offset of the last line, which may lack its newline; of a too long one, any."""
    end = max(size - 1, 0)
    while end > 0 and size - end <= MOST_LINE_BYTES:
        start = max(end - _BLOCK, 0)
        newline = read_at(descriptor, start, end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return end


def _save_torn(path: Path, torn: bytes) -> Path:
    """Save the removed bytes to a new file beside the journal and return its path."""
    number = 1
    while campaign_files.status_of(path.parent, name := f"{path.name}.torn-{number}") is not None:
        number += 1
    campaign_files.replace_file(path.parent, name, torn, durable=True)
    return path.with_name(name)


def _too_long(path: Path) -> JournalError:
    return JournalError(
        f"{path} is larger than {MOST_BYTES >> 30} GiB or has a line of more than "
        f"{MOST_LINE_BYTES >> 20} MiB, so no loop wrote it; restore the file from a copy"
    )


def _machinery(what: str, path: Path, error: OSError) -> MachineryError:
    return MachineryError(
        f"cannot {what} {path} ({error.strerror}); "
        "check the disk's free space, its health, the file's kind and permissions, then resume"
    )
