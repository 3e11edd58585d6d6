import sys
from pathlib import Path

import pytest

from trainer.isolation.kernel.libc import exchange

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is Linux's")


def test_two_directories_change_places(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other):
        directory.mkdir()
        (directory / directory.name).touch()
    assert exchange(one, other)
    assert [path.name for path in one.iterdir()] == ["other"]
    assert [path.name for path in other.iterdir()] == ["one"]


def test_what_the_file_system_cannot_is_told_from_what_it_refuses(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    assert not exchange(tmp_path, tmp_path / "inner")
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "inner", tmp_path / "missing")
