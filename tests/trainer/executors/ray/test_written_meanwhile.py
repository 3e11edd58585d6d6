"""A script's directory in which something is written while nodes train by what is in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoresearch.errors import SpecError
from tests.support.asked_nodes import AskedNode, localised
from tests.support.commands import script
from trainer.command import tree
from trainer.executors.ray.shipping import Shipping

LOG = "night.log"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    script(tmp_path / "own", "begun\n", LOG)
    script(tmp_path / "own", "1.25", "part.txt")
    return script(tmp_path / "own", "print(1)")


def sent(own: Path, node: AskedNode, ship: Shipping) -> Path:
    return Path(localised(own, node, ship).directory)


def grow(own: Path) -> None:
    with (own / LOG).open("a") as log:
        log.write("a trial\n")


def copies(node_dir: Path) -> int:
    return len(list((node_dir / "scripts").glob("[!.]*")))


def test_what_grows_beside_a_script_makes_no_new_one(own: Path, tmp_path: Path) -> None:
    node, ship = AskedNode(tmp_path / "node"), Shipping()
    first = sent(own, node, ship)
    for trial in range(4):
        grow(own)
        script(own / "events", "1", f"{trial}.tfevents")
        assert sent(own, node, ship) == first
    assert copies(tmp_path / "node") == 1
    assert node.asked == ["find", "take", "take", "keep", "find", "command"]
    assert (first / LOG).read_text() == "begun\n", "a copy is of one moment"
    another_night = sent(own, AskedNode(tmp_path / "node"), Shipping())
    assert (another_night / LOG).read_text().count("trial") == 4


def test_a_log_that_grows_while_it_is_sent_is_sent_as_it_was(own: Path, tmp_path: Path) -> None:
    node = AskedNode(tmp_path / "node", on_each_piece(lambda _: grow(own)))
    there = sent(own, node, Shipping())
    assert node.asked.count("keep") == 1
    assert (there / LOG).read_text() == "begun\n"
    assert (there / "train.py").read_text() == "print(1)"


def on_each_piece(do: Callable[[int], object]) -> Callable[[bytes], bytes]:
    """Do something with its number before each piece goes on, of which the first is the list."""
    numbers = iter(range(99))

    def change(piece: bytes) -> bytes:
        do(next(numbers))
        return piece

    return change


@pytest.mark.parametrize("text", ["1.5", "1.50", "1.505"])
def test_one_that_is_written_over_while_it_is_sent_is_sent_anew(
    own: Path, tmp_path: Path, text: str
) -> None:
    def write(piece: int) -> None:
        if piece in {0, 2}:
            (own / "part.txt").write_text(f"{text}{piece}"[-len(text) :])

    node = AskedNode(tmp_path / "node", on_each_piece(write))
    there = sent(own, node, Shipping())
    assert (there / "part.txt").read_text() == (own / "part.txt").read_text()
    assert (there / "train.py").read_text() == "print(1)"
    assert copies(tmp_path / "node") == 1


def test_one_that_goes_while_it_is_sent_is_left_out(own: Path, tmp_path: Path) -> None:
    gone = on_each_piece(lambda _: (own / "part.txt").unlink(missing_ok=True))
    there = sent(own, AskedNode(tmp_path / "node", gone), Shipping())
    assert sorted(path.name for path in there.iterdir()) == [LOG, "train.py"]


def test_one_that_goes_while_it_is_hashed_is_left_out(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = tree._pieces

    def gone(path: Path, most_bytes: int) -> Iterator[bytes]:
        (own / "part.txt").unlink(missing_ok=True)
        return pieces(path, most_bytes)

    monkeypatch.setattr(tree, "_pieces", gone)
    there = sent(own, AskedNode(tmp_path / "node"), Shipping())
    assert sorted(path.name for path in there.iterdir()) == [LOG, "train.py"]


def test_one_that_is_always_written_over_is_named(own: Path, tmp_path: Path) -> None:
    write = on_each_piece(lambda piece: (own / "part.txt").write_text(f"{piece:04}"))
    node = AskedNode(tmp_path / "node", write)
    with pytest.raises(SpecError, match=r"part\.txt in its directory was written over meanwhile"):
        sent(own, node, Shipping())
    assert node.asked.count("keep") == 5
    assert copies(tmp_path / "node") == 0


def test_a_node_that_comes_back_has_the_same_or_gets_it(own: Path, tmp_path: Path) -> None:
    ship = Shipping()
    first = sent(own, AskedNode(tmp_path / "node"), ship)
    grow(own)
    ship.forget()
    again = AskedNode(tmp_path / "node")
    assert sent(own, again, ship) == first
    assert again.asked == ["find", "command"]
    again.end()
    shutil.rmtree(tmp_path / "node")
    ship.forget()
    assert sent(own, AskedNode(tmp_path / "node"), ship) == first
    assert (first / LOG).read_text() == "begun\n"
    shutil.rmtree(tmp_path / "node")
    (own / "part.txt").write_text("1.75")
    ship.forget()
    another = sent(own, AskedNode(tmp_path / "node"), ship)
    assert another != first
    assert (another / "part.txt").read_text() == "1.75"


def test_a_save_that_is_taken_back_is_not_what_trials_go_on_with(own: Path, tmp_path: Path) -> None:
    node, ship = AskedNode(tmp_path / "node"), Shipping()
    texts = []
    for text in ("print(2)", "print(1)", "print(2)"):
        (own / "train.py").write_text(text)
        texts.append((sent(own, node, ship) / "train.py").read_text())
    assert texts == ["print(2)", "print(1)", "print(2)"]
