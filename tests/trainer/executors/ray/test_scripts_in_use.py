"""Scripts on a node that lanes use, and those that none has used for long."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

from tests.support.asked_nodes import AskedNode, localised
from tests.support.commands import script
from trainer.executors.ray.shipping import Shipping


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return script(tmp_path / "own", "print(0)")


def test_one_that_nobody_used_for_long_goes_when_another_comes(own: Path, tmp_path: Path) -> None:
    holder = AskedNode(tmp_path / "node")
    folders = []
    for text in ("print(1)", "print(2)", "print(3)"):
        (own / "train.py").write_text(text)
        node = holder if text == "print(2)" else AskedNode(tmp_path / "node")
        folders.append(Path(localised(own, node).directory).parent)
        if node is not holder:
            node.end()
    for folder in folders:
        os.utime(folder / "used", (0, time.time() - 15 * 86_400))
    (own / "train.py").write_text("print(4)")
    localised(own, AskedNode(tmp_path / "node"))
    assert [folder.exists() for folder in folders] == [False, True, False], "one is in use"


def test_a_lane_holds_the_script_that_it_found_last(own: Path, tmp_path: Path) -> None:
    """Former ones may go after their two weeks, and no descriptor of theirs is left."""
    node, ship = AskedNode(tmp_path / "node"), Shipping()
    before, folders = _descriptors(), []
    for text in ("print(1)", "print(2)", "print(3)"):
        (own / "train.py").write_text(text)
        folders.append(Path(localised(own, node, ship).directory).parent)
        assert _descriptors() == before + 1
    for folder in folders:
        os.utime(folder / "used", (0, time.time() - 15 * 86_400))
    (own / "train.py").write_text("print(4)")
    localised(own, AskedNode(tmp_path / "node"))
    assert [folder.exists() for folder in folders] == [False, False, True]
    node.end()
    assert _descriptors() == before + 1, "the other lane's"


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_one_that_goes_just_then_is_not_found(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks for a script while another lane removes it finds none, or keeps it from going."""
    node = AskedNode(tmp_path / "node")
    folder = Path(localised(own, node).directory).parent
    node.end()
    os.utime(folder / "used", (0, time.time() - 15 * 86_400))
    began, remove = threading.Event(), shutil.rmtree

    def slow(path: Path, **kwargs: Any) -> None:
        if path == folder:
            began.set()
            time.sleep(0.2)
        remove(path, **kwargs)

    monkeypatch.setattr(shutil, "rmtree", slow)
    (own / "train.py").write_text("print(2)")
    with futures.ThreadPoolExecutor() as pool:
        other = pool.submit(localised, own, AskedNode(tmp_path / "node"))
        assert began.wait(10)
        found = AskedNode(tmp_path / "node").ask("find", "script", folder.name, within_s=9)
        other.result()
    assert found == b""
    assert not folder.exists()


def test_one_that_is_taken_into_use_just_then_stays(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = AskedNode(tmp_path / "node")
    folder = Path(localised(own, node).directory).parent
    node.end()
    os.utime(folder / "used", (0, time.time() - 15 * 86_400))
    lock, late = fcntl.flock, AskedNode(tmp_path / "node")

    def meanwhile(descriptor: Any, how: int) -> None:
        if how == fcntl.LOCK_EX | fcntl.LOCK_NB:
            assert late.ask("find", "script", folder.name, within_s=9)
            late.end()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", meanwhile)
    (own / "train.py").write_text("print(2)")
    localised(own, AskedNode(tmp_path / "node"))
    assert folder.exists()
