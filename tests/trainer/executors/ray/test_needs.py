"""A command needs more on a node than its script, and its paths are valid there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autoresearch.errors import SpecError
from tests.support.commands import command, script
from trainer.command.program import environment_of
from trainer.executors.ray.facts import find_facts, unfit
from trainer.executors.ray.messages import Needs

HEAD = "/head/venv/bin/python3"


def test_a_program_is_found_where_a_node_has_it(own: Path, tmp_path: Path) -> None:
    ours = Path(sys.executable)
    for folder in (own, own / ".tools", own / "gone"):
        (script(folder, "#!/bin/sh", "run.sh") / "run.sh").chmod(0o755)
    tree = script(tmp_path / "tree", "#!/bin/sh", "run.sh")
    (tree / "run.sh").chmod(0o755)

    def found(program: Path | str) -> str:
        told = command(directory=str(own), argv=(str(program), "x"), programs=(str(program),))
        here = Needs(told, HEAD).on_node(tree)
        assert here.programs == tuple(
            map(str, environment_of(Path(here.argv[0]), Path(here.directory)))
        )
        assert here.argv[1:] == ("x",)
        return here.argv[0]

    assert found(HEAD) == str(ours)
    assert found(Path(HEAD).with_name("pytest")) == str(ours.with_name("pytest"))
    assert found(own / "run.sh") == str(tree / "run.sh")
    assert found(own / ".tools" / "run.sh") == str(own / ".tools" / "run.sh")
    assert found("/bin/sh") == "/bin/sh"
    with pytest.raises(SpecError):
        found("/opt/none/python")


@pytest.mark.parametrize(
    ("argv", "reads", "preload", "lacks"),
    [
        (HEAD, (), (), ""),
        ("/own/run.sh", (), (), ""),
        ("/opt/none/python", (), (), "/opt/none/python"),
        ("/head/venv/bin/none", (), (), str(Path(sys.executable).with_name("none"))),
        (HEAD, ("/", "/opt/none"), (), "/opt/none"),
        (HEAD, (), ("json.tool", "no_such"), "no_such"),
    ],
)
def test_what_a_node_lacks_is_named(
    tmp_path: Path, argv: str, reads: tuple[str, ...], preload: tuple[str, ...], lacks: str
) -> None:
    told = command(directory="/own", argv=(argv,), programs=(argv,), reads=reads, preload=preload)
    said = unfit(find_facts(tmp_path, Needs(told, HEAD)), "cpu")
    assert lacks in said
    assert bool(lacks) == bool(said)


THERE = Path("/node/tree")


@pytest.mark.parametrize(
    ("word", "moved"),
    [
        ("{own}", "{there}"),
        ("{own}/x", "{there}/x"),
        ("--root={own}", "--root={there}"),
        ("-I{own}/include", "-I{there}/include"),
        ("/usr/x:{own}/a:{own}", "/usr/x:{there}/a:{there}"),
        ("{own}/a,{own}/b c", "{there}/a,{there}/b c"),
        ("{{big:{own}/a|{own}}}", "{{big:{there}/a|{there}}}"),
        ("{own}/../other/x", "{own}/../other/x"),
        ("/mnt{own}/x", "/mnt{own}/x"),
        ("{own}-2/x", "{own}-2/x"),
    ],
)
def test_a_path_of_the_directory_is_moved_and_no_other(own: Path, word: str, moved: str) -> None:
    said = word.format(own=own)
    expected = moved.format(own=own, there=THERE)
    told = command(
        directory=str(own),
        argv=(sys.executable, "train.py", said),
        env=(("PYTHONPATH", said),),
        edits=(("ROOT", said),),
    )
    here = Needs(told).on_node(THERE)
    assert here.argv == (sys.executable, "train.py", expected)
    assert here.env == (("PYTHONPATH", expected),)
    assert here.edits == (("ROOT", expected),)
    assert here.directory == str(THERE)
