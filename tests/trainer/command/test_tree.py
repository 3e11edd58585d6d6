"""What of a script's directory goes to other machines."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import SpecError
from tests.support.commands import command, script
from trainer.command import tree as module
from trainer.command.tree import Manifest, Tree, TreeLink, Trees, weigh
from trainer.command.workspace import Reach


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return script(tmp_path / "own", "print(1)")


def tree_of(own: Path, trees: Trees | None = None, **changes: Any) -> Tree:
    told = command(directory=str(own), **changes)
    return (trees or Trees()).of(told, own.parent / "c" / "trials" / "t000001")


def names(tree: Tree) -> list[str]:
    return [file.path for file in tree.manifest.files]


def test_what_a_trial_may_read_goes_along_and_nothing_else(own: Path) -> None:
    script(own / "sub", "KEY=1", ".env")
    script(own / "sub", "print(2)", "part.py")
    script(own / ".git", "1", "config")
    script(own / "data", "*", ".gitignore")
    script(own / "__pycache__", "1", "train.pyc")
    script(own / "runs" / "old", "rows", "trajectory.jsonl")
    (own / "empty").mkdir()
    tree = tree_of(own)
    assert names(tree) == ["data/.gitignore", "sub/part.py", "train.py"]
    assert tree.manifest.folders == ("data", "empty", "runs", "sub")
    contents = b"".join(tree.contents())
    assert contents == b"*print(2)print(1)"
    assert [file.sha256 for file in tree.manifest.files] == [
        hashlib.sha256(part).hexdigest() for part in (b"*", b"print(2)", b"print(1)")
    ]


def test_links_lead_to_the_same_or_stay(own: Path, tmp_path: Path) -> None:
    script(own / "sub", "KEY=1", ".env")
    script(tmp_path / "home", "KEY=1", "key")
    (own / "sub" / "up").symlink_to("../train.py")
    (own / "absolute").symlink_to(own / "sub")
    (own / "out").symlink_to(tmp_path / "home" / "key")
    (own / "hidden").symlink_to("sub/.env")
    (own / "itself").symlink_to(".")
    assert tree_of(own).manifest.links == (
        TreeLink(path="absolute", target="sub"),
        TreeLink(path="sub/up", target="../train.py"),
    )


def test_what_the_menu_reads_stays_and_is_linked_to(own: Path, tmp_path: Path) -> None:
    script(own / "data", "1" * 50, "train.bin")
    script(own / "data", "1", "prepare.py")
    elsewhere = script(tmp_path / "disk", "2", "val.bin")
    (own / "more").symlink_to(elsewhere)
    reads = (str(own / "data" / "train.bin"), str(elsewhere))
    tree = tree_of(own, reads=reads)
    assert names(tree) == ["data/prepare.py", "train.py"]
    assert tree.manifest.links == (
        TreeLink(path="data/train.bin", target=reads[0]),
        TreeLink(path="more", target=reads[1]),
    )


@pytest.mark.parametrize("spelt", ["linked/own/data", "own/../own/data", "own/sub/..", "data"])
def test_what_the_menu_reads_may_be_spelt_in_any_way(own: Path, tmp_path: Path, spelt: str) -> None:
    """By the user's home, say, which leads to another disk."""
    (tmp_path / "linked").symlink_to(tmp_path)
    (tmp_path / "data").symlink_to("own/data")
    script(own / "data" / "sub", "1" * 50, "train.bin")
    (own / "sub").symlink_to("data/sub")
    named = str(tmp_path / spelt)
    tree = tree_of(own, reads=(named,))
    assert names(tree) == ["train.py"]
    assert TreeLink(path="data", target=named) in tree.manifest.links
    assert TreeLink(path="sub", target=f"{named}/sub") in tree.manifest.links


def test_a_link_to_what_the_menu_reads_is_there_for_a_trial(own: Path, tmp_path: Path) -> None:
    disk = script(tmp_path / "disk", "2", "val.bin")
    (own / "more").symlink_to(disk)
    trial_dir = tmp_path / "c" / "trials" / "t000001"

    def entries(**changes: Any) -> list[str]:
        reach = Reach.of(command(directory=str(own), **changes), trial_dir)
        return [entry.name for entry in reach.entries]

    assert entries() == ["train.py"]
    assert entries(reads=(str(disk),)) == ["more", "train.py"]


def test_the_name_is_of_what_is_in_it(own: Path) -> None:
    trees, before = Trees(), tree_of(own).sha256
    assert tree_of(own, trees).sha256 == before
    os.utime(own / "train.py", (time.time() + 9, time.time() + 9))
    assert tree_of(own, trees).sha256 == before
    (own / "train.py").write_text("print(2)")
    changed = tree_of(own, trees).sha256
    assert changed != before
    (own / "train.py").chmod(0o755)
    assert tree_of(own, trees).sha256 not in {before, changed}


def test_what_did_not_change_is_not_read_twice(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = Trees()
    before = tree_of(own, trees)
    monkeypatch.setattr(module, "_pieces", None)
    assert tree_of(own, trees) == before


def test_too_much_is_refused_with_what_to_do(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(own / "data", "1" * 60, "train.bin")
    told = command(directory=str(own))
    trial_dir = own.parent / "c" / "trials" / "t000001"
    assert weigh(told, trial_dir) == (2, 68)
    monkeypatch.setattr(module, "MOST_BYTES", 67)
    why = rf"most is in data: name .* under \[trainer\] reads, .* same path, {own}/data$"
    with pytest.raises(SpecError, match=why):
        weigh(told, trial_dir)
    assert weigh(command(directory=str(own), reads=(str(own / "data"),)), trial_dir) == (1, 8)
    monkeypatch.setattr(module, "MOST_BYTES", 68)
    monkeypatch.setattr(module, "MOST_ENTRIES", 2)
    with pytest.raises(SpecError, match="more than is sent to other machines"):
        weigh(told, trial_dir)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", ".", "a//b"])
def test_no_path_of_a_manifest_leads_out(path: str) -> None:
    with pytest.raises(ValueError, match="is no path below a directory"):
        Manifest(folders=(path,), files=(), links=())
