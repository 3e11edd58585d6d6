"""Computation of a script's paths that trials may read; test_privacy.py attacks them."""

import os
import socket
from pathlib import Path

import pytest

from autoresearch.errors import SandboxError, SpecError
from tests.support.commands import command, script
from trainer.command import open_paths as module
from trainer.command.open_paths import open_paths
from trainer.command.workspace import Reach


def granted(own: Path, *whole: str) -> list[str]:
    found, _ = open_paths(own, shut=set(), whole={str(own / name) for name in whole})
    return sorted(str(path.relative_to(own)) for path in found)


def reach(own: Path, tmp_path: Path, **changes: object) -> Reach:
    told = command(directory=str(own), **changes)
    return Reach.of(told, tmp_path / "c" / "trials" / "t000001")


def test_a_folder_with_nothing_hidden_is_granted_whole(own: Path) -> None:
    script(own / "data" / "deep", "1", "a.txt")
    assert granted(own) == ["data", "train.py"]


def test_beside_something_hidden_each_entry_is_granted_by_itself(own: Path) -> None:
    script(own / "sub" / "deep" / "deeper", "1", "a.txt")
    script(own / "sub" / "deep", "KEY=1", ".env")
    script(own / "sub" / "other", "1", "b.txt")
    assert granted(own) == ["sub/deep/deeper", "sub/other", "train.py"]


@pytest.mark.parametrize("mark", ["trajectory.jsonl", "campaign.lock", "imported.jsonl"])
def test_another_campaign_is_closed_however_deep(own: Path, mark: str) -> None:
    script(own / "old" / "runs" / "a" / "trials" / "t000001", "{}", "result.json")
    script(own / "old" / "runs" / "a", "rows", mark)
    script(own / "old", "kept", "notes.txt")
    assert granted(own) == ["old/notes.txt", "train.py"]


def test_small_files_that_hold_no_keys_split_no_folder(own: Path) -> None:
    script(own / "data", "*", ".gitignore")
    assert granted(own) == ["data", "train.py"]
    script(own / "data" / ".keep", "KEY=1", "key")  # a folder with that name may contain anything
    assert granted(own) == ["data/.gitignore", "train.py"]


def test_what_leads_to_another_process_is_closed(own: Path) -> None:
    (own / "sub").mkdir()
    os.mkfifo(own / "sub" / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(own / "socket"))
        (own / "link").symlink_to("socket")
        assert granted(own) == ["train.py"]
        _, closed = open_paths(own, shut=set(), whole=set())
    assert closed == {str(own / "sub" / "pipe"), str(own / "socket")}


def test_a_link_grants_nothing_by_itself(own: Path, tmp_path: Path) -> None:
    script(own / "sub", "KEY=1", ".env")
    (own / "sub" / "plain").symlink_to(".env")
    (own / "top").symlink_to("sub/.env")
    (own / "circle").symlink_to("circle")
    (own / "good").symlink_to("train.py")
    assert granted(own) == ["train.py"]
    assert [entry.name for entry in reach(own, tmp_path).entries] == [
        *("circle", "good", "sub", "train.py")
    ]


def test_what_is_read_is_whole(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        script(own / "data" / "images", "1", f"{number}.png")
    monkeypatch.setattr(module, "MOST_SEEN", 10)
    with pytest.raises(SpecError):
        granted(own)
    assert granted(own, "data") == ["train.py"]
    found = reach(own, tmp_path, reads=(str(own / "data"),))
    assert (found.granted, found.declared) == ((own / "train.py",), (own / "data",))


def test_a_hidden_file_beside_much_is_refused(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        script(own / "data", "1", f"{number}.png")
    monkeypatch.setattr(module, "MOST_GRANTED", 10)
    assert granted(own) == ["data", "train.py"]
    script(own / "data", "KEY=1", ".env")
    with pytest.raises(SpecError):
        granted(own)


def test_what_would_open_the_directory_as_a_whole_is_refused(own: Path, tmp_path: Path) -> None:
    for path in (own, tmp_path):
        with pytest.raises(SandboxError):
            reach(own, tmp_path / "elsewhere", reads=(str(path),))
    script(own, "rows", "trajectory.jsonl")
    with pytest.raises(SandboxError):
        reach(own, tmp_path)
