"""A command needs more on a node than its script, and its paths are valid there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.commands import command, script
from trainer.command.program import environment_of
from trainer.executors.ray.facts import find_facts, unfit
from trainer.executors.ray.needs import Needs, command_here, portable_program, with_uniform_paths
from trainer.spec import Command


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Return a script's directory, which is also reachable by the link ``linked/own``."""
    (tmp_path / "linked").symlink_to("real")
    return script(tmp_path / "real" / "own", "print(1)")


def test_a_program_is_found_where_a_node_has_it(own: Path) -> None:
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
    there = command_here(told, portable_program(told), own)
    assert there.argv == (str(own / "run.sh"), "x")
    assert there.programs == (str(own / "run.sh"),)


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


THERE = Path("/node/tree")


def there(told: Command) -> Command:
    return command_here(with_uniform_paths(told), portable_program(told), THERE)


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
        ("{linked}/x", "{there}/x"),
        ("--root={linked}:{own}", "--root={there}:{there}"),
        ("{own}/../own/x", "{there}/x"),
        ("{own}/../other/x", "{own}/../other/x"),
        ("/mnt{own}/x", "/mnt{own}/x"),
        ("{own}-2/x", "{own}-2/x"),
    ],
)
def test_a_path_of_the_directory_is_moved_and_no_other(own: Path, word: str, moved: str) -> None:
    linked = own.parent.parent / "linked" / "own"
    said = word.format(own=own, linked=linked)
    expected = moved.format(own=own, linked=linked, there=THERE)
    told = command(
        directory=str(own),
        argv=(sys.executable, "train.py", said),
        env=(("PYTHONPATH", said),),
        edits=(("ROOT", said),),
    )
    here = there(told)
    assert here.argv == (sys.executable, "train.py", expected)
    assert here.env == (("PYTHONPATH", expected),)
    assert here.edits == (("ROOT", expected),)
    assert here.directory == str(THERE)


def test_a_directory_that_is_given_by_a_link_is_known_by_its_own_name_too(own: Path) -> None:
    linked = own.parent.parent / "linked" / "own"
    told = command(directory=str(linked), argv=(sys.executable, f"{own}/x", f"--root={linked}"))
    assert there(told).argv[1:] == (f"{THERE}/x", f"--root={THERE}")
