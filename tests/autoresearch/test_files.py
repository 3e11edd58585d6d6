"""A file is replaced whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoresearch.files import replace_file


@pytest.mark.parametrize("durable", [False, True])
def test_the_content_is_the_new_one_and_nothing_else_is_left(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "campaign.toml"
    for content in ("old", "größer", b"\x00bytes"):
        replace_file(path, content, durable=durable)
        assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(tmp_path.iterdir()) == [path]


def test_where_it_fails_the_old_content_stands(tmp_path: Path) -> None:
    path = tmp_path / "full"
    path.mkdir()
    with pytest.raises(OSError):
        replace_file(path, "new")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "missing" / "x", "new")
