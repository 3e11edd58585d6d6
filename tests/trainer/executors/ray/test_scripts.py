"""Scripts on their way to a node: whole, by hash, once; and what the node must have besides."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import SpecError
from tests.support.asked_nodes import AskedNode, localised
from tests.support.commands import command, command_spec, script
from trainer.command.program import environment_of
from trainer.executors.base import LaneLost
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.executors.ray.facts import find_facts
from trainer.executors.ray.needs import Needs, command_here, portable_program
from trainer.executors.ray.seats import unfit
from trainer.executors.ray.shipping import Shipping
from trainer.isolation.kernel.sandbox import Layers
from trainer.spec import CommandOk

PRINTS = "print('val loss', open('data/part.txt').read())"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    script(tmp_path / "own" / "data", "1.25", "part.txt")
    return script(tmp_path / "own", PRINTS)


def test_a_script_is_sent_once_and_is_the_same_there(own: Path, tmp_path: Path) -> None:
    node, ship = AskedNode(tmp_path / "node"), Shipping()
    (own / "train.py").chmod(0o755)
    there = Path(localised(own, node, ship).directory)
    assert there.is_relative_to(tmp_path / "node" / "scripts")
    assert (there / "train.py").read_text() == PRINTS
    assert (there / "data" / "part.txt").read_text() == "1.25"
    assert (there / "train.py").stat().st_mode & 0o777 == 0o755
    assert (there / "data" / "part.txt").stat().st_mode & 0o777 == 0o644, "a copy can be edited"
    assert node.asked.count("take") == 2
    before = len(node.asked)
    assert localised(own, node, ship).directory == str(there)
    assert len(node.asked) == before, "nothing is asked where nothing changed"
    again = AskedNode(tmp_path / "node")
    assert localised(own, again).directory == str(there), "another driver finds it there"
    assert again.asked == ["find", "command"]


def test_a_script_that_was_edited_is_another(own: Path, tmp_path: Path) -> None:
    node, ship = AskedNode(tmp_path / "node"), Shipping()
    first = localised(own, node, ship).directory
    (own / "train.py").write_text("print('val loss 2')")
    second = localised(own, node, ship).directory
    assert Path(first, "train.py").read_text() == PRINTS
    assert Path(second, "train.py").read_text() == "print('val loss 2')"


@pytest.mark.parametrize("change", [lambda data: data[:-1] + b"!", lambda data: data + b" "])
def test_one_that_changed_on_its_way_is_refused(own: Path, tmp_path: Path, change: Any) -> None:
    torn = AskedNode(tmp_path / "node", change)
    with pytest.raises(SpecError, match=r"hashes to something else: manifest.json in"):
        localised(own, torn)
    assert not list((tmp_path / "node" / "scripts").glob("[!.]*"))
    assert list((tmp_path / "node" / "lanes" / ("a" * 16)).iterdir()) == []
    assert localised(own, AskedNode(tmp_path / "node"))


def test_one_that_came_half_is_sent_from_its_beginning(own: Path, tmp_path: Path) -> None:
    node, ship = AskedNode(tmp_path / "node"), Shipping()
    heard = node.ask
    node.ask = _until("keep", heard)  # type: ignore[method-assign]
    with pytest.raises(LaneLost):
        localised(own, node, ship)
    node.ask = heard  # type: ignore[method-assign]
    assert Path(localised(own, node, ship).directory, "train.py").read_text() == PRINTS


def _until(last: str, heard: Callable[..., bytes]) -> Callable[..., bytes]:
    def ask(method: str, *arguments: object, within_s: float) -> bytes:
        if method == last:
            raise LaneLost("the network is gone")
        return heard(method, *arguments, within_s=within_s)

    return ask


@pytest.mark.parametrize("damage", ["changed", "added", "removed", "linked"])
def test_one_that_was_damaged_there_is_sent_anew(own: Path, tmp_path: Path, damage: str) -> None:
    part = Path(localised(own, AskedNode(tmp_path / "node")).directory, "data", "part.txt")
    if damage == "added":
        (part.parent / "more").touch()
    else:
        part.unlink()
    if damage == "changed":
        part.write_text("1.26")
    if damage == "linked":
        part.symlink_to(own / "data" / "part.txt")
    again = AskedNode(tmp_path / "node")
    localised(own, again)
    assert again.asked.count("take") == 2
    assert not part.is_symlink()
    assert part.read_text() == "1.25"
    assert [path.name for path in part.parent.iterdir()] == ["part.txt"]


def test_a_command_has_the_node_s_paths(own: Path, tmp_path: Path) -> None:
    disk = script(tmp_path / "disk", "1", "big.bin")
    there = localised(
        own,
        AskedNode(tmp_path / "node"),
        argv=(sys.executable, "train.py", f"--data={own}/data", f"{own}/train.py", "--lr={lr}"),
        env=(("CONFIG", f"{own}/config.json"),),
        reads=(str(disk),),
    )
    tree = there.directory
    assert there.argv == (
        *(sys.executable, "train.py", f"--data={tree}/data", f"{tree}/train.py", "--lr={lr}"),
    )
    assert there.env == (("CONFIG", f"{tree}/config.json"),)
    assert there.reads == (str(disk),)


def test_a_program_is_found_where_a_node_has_it(own: Path, tmp_path: Path) -> None:
    python = Path(sys.executable)
    tool = script(own, "#!/bin/sh\necho val loss 1", "run.sh") / "run.sh"
    tool.chmod(0o755)
    hidden = script(own / ".tools", "#!/bin/sh", "run.sh") / "run.sh"

    def portable(program: Path) -> str:
        told = command(directory=str(own), argv=(str(program),), programs=_programs(program))
        return portable_program(told)

    assert portable(python) == "{python}"
    assert portable(python.parent / "torchrun") == "{bin}/torchrun"
    assert portable(tool) == "{script}/run.sh"
    assert portable(hidden) == str(hidden)
    assert portable(Path("/bin/sh")) == "/bin/sh"
    told = command(directory=str(own), argv=(str(tool), "x"), programs=(str(tool),))
    there = command_here(told, portable_program(told), tmp_path / "own")
    assert there.argv == (str(tmp_path / "own" / "run.sh"), "x")
    assert there.programs == (str(tmp_path / "own" / "run.sh"),)


def _programs(program: Path) -> tuple[str, ...]:
    is_there = program.parent != Path(sys.executable).parent
    return tuple(map(str, environment_of(program))) if is_there else ()


@pytest.mark.parametrize(
    ("needs", "lacks"),
    [
        (Needs(program="{python}"), ""),
        (Needs(program="{script}/run.sh"), ""),
        (Needs(program="/opt/none/python"), "there is no program /opt/none/python, with which"),
        (Needs(program="{bin}/none"), "or begin with {python}, the Python that autoresearch"),
        (Needs(program="{python}", reads=("/", "/opt/none")), "there is no /opt/none, which [tr"),
        (Needs(program="{python}", preload=("json.tool", "no_such")), "has no no_such, which [tr"),
    ],
)
def test_what_a_node_lacks_is_a_sentence(tmp_path: Path, needs: Needs, lacks: str) -> None:
    said = unfit(find_facts(tmp_path, needs), "cpu")
    assert lacks in said
    assert bool(lacks) == bool(said)


@pytest.mark.skipif(Layers.detect().landlock_abi < 3, reason="this kernel cannot confine a trial")
def test_a_trial_runs_of_what_came(own: Path, tmp_path: Path) -> None:
    """With data that the menu reads, which is the node's own, in the script's folder and beside."""
    big = script(own / "big", "0.5", "part.txt")
    (own / "train.py").write_text(
        PRINTS + "\nprint('iter 1: loss', open('big/part.txt').read())\n"
        "for place in ('train.py', 'data/part.txt', 'big/part.txt', 'data/new', 'big/new'):\n"
        "    try:\n"
        "        open(place, 'w')\n"
        "        print('WROTE', place)\n"
        "    except PermissionError:\n"
        "        pass\n"
    )
    home = tmp_path / "node"
    there = localised(own, AskedNode(home), reads=(str(big),))
    assert (Path(there.directory) / "big").readlink() == big
    shutil.rmtree(own / "data")
    trial = home / "lanes" / ("b" * 16) / "t000001"
    with LocalExecutor(entry=COMMAND_ENTRY, fork_server=False) as executor:
        spec = command_spec(command=there)
        result = executor.submit(spec, trial).result(60).result
    log = (trial / "trainer.log").read_text()
    assert isinstance(result, CommandOk), log
    assert result.score == 1.25
    assert "iter 1: loss 0.5" in log
    assert "WROTE" not in log
