"""The parts of a script's directory that are hashed, and those that are sent to other machines."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import SpecError
from tests.support.commands import command, script
from trainer.command import tree as module
from trainer.command.tree import code_sha256, pack, unpack
from trainer.command.workspace import Reach


def packed(own: Path, **changes: Any) -> bytes:
    into = io.BytesIO()
    trial_dir = own.parent / "c" / "trials" / "t000001"
    pack(command(directory=str(own), **changes), trial_dir, into)
    return into.getvalue()


def tree_of(own: Path, **changes: Any) -> dict[str, str]:
    """Return the tree on another machine: contents of files, and targets of links."""
    archive, tree = own.parent / "script.tar", own.parent / "there"
    archive.write_bytes(packed(own, **changes))
    unpack(archive, tree)
    found = {}
    for path in sorted(tree.rglob("*")):
        name = path.relative_to(tree).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = "folder" if path.is_dir() else path.read_text()
    return found


def test_what_a_trial_may_read_goes_along_and_nothing_else(own: Path) -> None:
    script(own / "sub", "KEY=1", ".env")
    script(own / "sub", "print(2)", "part.py")
    script(own / ".git", "1", "config")
    script(own / "data", "*", ".gitignore")
    script(own / "__pycache__", "1", "train.pyc")
    script(own / "runs" / "old", "rows", "trajectory.jsonl")
    (own / "again.py").hardlink_to(own / "train.py")
    os.mkfifo(own / "pipe")
    (own / "empty").mkdir()
    assert tree_of(own) == {
        **dict.fromkeys(("data", "empty", "runs", "sub"), "folder"),
        "data/.gitignore": "*",
        "sub/part.py": "print(2)",
        "again.py": "print(1)",
        "train.py": "print(1)",
    }


def test_links_lead_to_the_same_or_stay(own: Path, tmp_path: Path) -> None:
    script(own / "sub", "KEY=1", ".env")
    script(tmp_path / "home", "KEY=1", "key")
    (own / "sub" / "up").symlink_to("../train.py")
    (own / "absolute").symlink_to(own / "sub")
    (own / "out").symlink_to(tmp_path / "home" / "key")
    (own / "hidden").symlink_to("sub/.env")
    (own / "itself").symlink_to(".")
    assert tree_of(own) == {
        "sub": "folder",
        "train.py": "print(1)",
        "absolute": "-> sub",
        "hidden": "-> sub/.env",
        "itself": "-> .",
        "sub/up": "-> ../train.py",
    }


def test_what_the_menu_reads_stays_and_is_linked_to(own: Path, tmp_path: Path) -> None:
    script(own / "data", "1" * 50, "train.bin")
    script(own / "data", "1", "prepare.py")
    elsewhere = script(tmp_path / "disk", "2", "val.bin")
    (own / "more").symlink_to(elsewhere)
    reads = (str(own / "data" / "train.bin"), str(elsewhere))
    assert tree_of(own, reads=reads) == {
        "data": "folder",
        "data/prepare.py": "1",
        "train.py": "print(1)",
        "data/train.bin": f"-> {reads[0]}",
        "more": f"-> {reads[1]}",
    }


@pytest.mark.parametrize("spelt", ["linked/own/data", "own/../own/data", "own/sub/..", "data"])
def test_what_the_menu_reads_may_be_spelt_in_any_way(own: Path, tmp_path: Path, spelt: str) -> None:
    """For example, the path may go through the user's home, which links to another disk."""
    (tmp_path / "linked").symlink_to(tmp_path)
    (tmp_path / "data").symlink_to("own/data")
    script(own / "data" / "sub", "1" * 50, "train.bin")
    (own / "sub").symlink_to("data/sub")
    named = str(tmp_path / spelt)
    assert tree_of(own, reads=(named,)) == {
        "train.py": "print(1)",
        "data": f"-> {named}",
        "sub": f"-> {named}/sub",
    }


def test_a_link_to_what_the_menu_reads_is_there_for_a_trial(own: Path, tmp_path: Path) -> None:
    disk = script(tmp_path / "disk", "2", "val.bin")
    (own / "more").symlink_to(disk)
    trial_dir = tmp_path / "c" / "trials" / "t000001"

    def entries(**changes: Any) -> list[str]:
        reach = Reach.of(command(directory=str(own), **changes), trial_dir)
        return [entry.name for entry in reach.entries]

    assert entries() == ["train.py"]
    assert entries(reads=(str(disk),)) == ["more", "train.py"]


def test_too_much_is_refused_with_what_to_do(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(own / "data", "1" * 60, "train.bin")
    trial_dir = own.parent / "c" / "trials" / "t000001"

    def weigh(**changes: Any) -> tuple[int, int]:
        return pack(command(directory=str(own), **changes), trial_dir, io.BytesIO())

    assert weigh() == (2, 68)
    monkeypatch.setattr(module, "MOST_BYTES", 67)
    with pytest.raises(SpecError, match=f"{own}/data$"):
        weigh()
    assert weigh(reads=(str(own / "data"),)) == (1, 8)


def test_settings_are_hashed_and_data_are_not(own: Path) -> None:
    (own / "config.yaml").write_text("lr: 1")
    before = code_sha256(own, own / "runs")
    assert before[1] == 2
    (own / "data.json").write_text(" " * ((1 << 20) + 1))
    (own / "log.txt").write_text("x")
    (own / "menu.toml").write_text("name = 'own'\n[trainer]\n")
    assert code_sha256(own, own / "runs") == before
    (own / "config.yaml").write_text("lr: 2")
    assert code_sha256(own, own / "runs") != before


@pytest.mark.parametrize("mark", ["trajectory.jsonl", "campaign.lock"])
def test_another_campaign_in_the_checkout_is_not_the_script(own: Path, mark: str) -> None:
    before = code_sha256(own, own / "runs" / "b")
    work = script(own / "runs" / "a" / "trials" / "t000001", "print(2)")
    assert code_sha256(own, own / "runs" / "b") != before
    (work.parent.parent / mark).touch()
    assert code_sha256(own, own / "runs" / "b") == before
