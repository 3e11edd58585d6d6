"""A report's files appear all together or not at all."""

from __future__ import annotations

import errno
import resource
import signal
from pathlib import Path

import pytest

from trajectory.report.report import _replace_all


def test_a_disk_that_fills_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    files = {tmp_path / f"{number}.svg": b"new" for number in range(5)}
    for path in files:
        path.write_bytes(b"old")
    page = tmp_path / "report.html"
    page.write_bytes(b"old page")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(OSError) as caught:
            _replace_all({**files, page: b"x" * (1 << 20)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert caught.value.errno == errno.EFBIG
    assert {path.read_bytes() for path in files} == {b"old"}
    assert page.read_bytes() == b"old page"
    assert set(tmp_path.iterdir()) == {page, *files}, "nothing lies beside them"
    _replace_all({**files, page: b"new page"})
    assert {path.read_bytes() for path in files} == {b"new"}
    assert page.read_bytes() == b"new page"
