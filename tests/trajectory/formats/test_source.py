"""An import refuses an endless file before it reads it, and lines keep their numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import FormatError
from tests.support.rows import Simulator, write_journal
from trajectory.formats import commit_logs, single_knob, source
from trajectory.formats.importing import read_journal
from trajectory.formats.source import Source


def lines(path: Path, data: bytes) -> list[tuple[int, bytes]]:
    path.write_bytes(data)
    return [(line.number, line.raw) for line in Source.read(path).lines()]


def test_an_endless_a_huge_an_empty_and_a_wide_file_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "big").open("wb") as file:
        file.truncate(source.MOST_BYTES + 1)
    (tmp_path / "empty").write_bytes(b"\n \n\r\n")
    for encoding in ("utf-16", "utf-16-be"):
        (tmp_path / encoding).write_bytes("\ufeffcommit".encode(encoding))
    for path in (*tmp_path.iterdir(), Path("/dev/zero"), Path("/dev")):
        with pytest.raises(FormatError) as raised:
            Source.read(path)
        assert "\n" not in str(raised.value)


def test_lines_are_numbered_as_an_editor_does(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert lines(path, b"a\n\n  \nb\nc") == [(1, b"a"), (4, b"b"), (5, b"c")]
    assert lines(path, b"a\r\n\r\nb\r\n") == [(1, b"a"), (3, b"b")]
    assert lines(path, b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n") == [(1, b"a"), (2, b"\xef\xbb\xbfb")]
    assert lines(path, b"a\x0bb\x0c\xe2\x80\xa8c\n") == [(1, b"a\x0bb\x0c\xe2\x80\xa8c")]


def test_what_is_not_utf_8_is_shown(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"caf\xe9\n")
    (line,) = Source.read(tmp_path / "file").lines()
    with pytest.raises(ValueError, match="it is not UTF-8"):
        line.text()


_HEADERS = {
    commit_logs.read_tsv: b"commit\tval_bpb\tmemory_gb\tstatus\tdescription\n",
    single_knob.read: b"",
    commit_logs.read_pi: b'{"type": "config", "metricName": "loss"}\n',
}


@pytest.mark.parametrize("reader", _HEADERS, ids=lambda reader: reader.__name__)
def test_a_file_of_nothing_but_nonsense_is_refused_early(tmp_path: Path, reader: Any) -> None:
    header = _HEADERS[reader]
    (tmp_path / "file").write_bytes(header + b"1\n" * (3 << 19))
    last = source.MOST_SKIPPED + 1 + header.count(b"\n")
    with pytest.raises(FormatError, match=rf"line {last} "):
        reader(Source.read(tmp_path / "file"))


def test_a_journal_of_nonsense_is_refused_early(tmp_path: Path) -> None:
    rows = len(write_journal(tmp_path / "file", Simulator().rows(1)))
    with (tmp_path / "file").open("ab") as file:
        file.write(b"1\n" * (3 << 19))
    with pytest.raises(FormatError, match=rf"line {rows + source.MOST_SKIPPED + 1} "):
        read_journal(Source.read(tmp_path / "file"))


def test_lines_and_their_length_are_bounded(tmp_path: Path) -> None:
    file = Source(tmp_path / "file", b"a\n" * 4)
    assert len(list(file.lines(4))) == 4
    with pytest.raises(FormatError):
        list(file.lines(3))
    whole = b"x" * source.MOST_LINE_BYTES
    assert len(list(Source(tmp_path / "file", whole).lines())) == 1
    with pytest.raises(FormatError, match="line 2"):
        list(Source(tmp_path / "file", b"a\n" + whole + b"x").lines())
