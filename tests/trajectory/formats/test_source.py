"""Reading a file to import: what has no end is not begun, and lines keep their numbers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoresearch.errors import FormatError
from trajectory.formats import source
from trajectory.formats.source import Source


def lines(path: Path, data: bytes) -> list[tuple[int, bytes]]:
    path.write_bytes(data)
    return [(line.number, line.raw) for line in Source.read(path).lines()]


def refusal(path: Path) -> str:
    with pytest.raises(FormatError) as raised:
        Source.read(path)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/full", "/dev"])
def test_a_device_is_not_read(path: str) -> None:
    assert "is no regular file" in refusal(Path(path))


@pytest.mark.timeout(20)
def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is no regular file" in refusal(tmp_path / "pipe")


def test_no_more_is_read_than_the_most(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(source.MOST_BYTES + 1)
    assert "is larger than 1 GiB" in refusal(tmp_path / "big")


@pytest.mark.parametrize("data", [b"", b"\n \n\r\n"])
def test_an_empty_file_is_called_that(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "empty").write_bytes(data)
    assert "is empty" in refusal(tmp_path / "empty")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_called_that(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "wide").write_bytes("\ufeffcommit".encode(encoding))
    assert "save it as UTF-8" in refusal(tmp_path / "wide")


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
