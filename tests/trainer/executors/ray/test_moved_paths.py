"""Paths in a command's words are valid on a node where the script's directory is elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.commands import command, script
from trainer.executors.ray.needs import command_here, portable_program, with_uniform_paths
from trainer.spec import Command

THERE = Path("/node/tree")


def there(told: Command) -> Command:
    return command_here(with_uniform_paths(told), portable_program(told), THERE)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Return a script's directory, which is also reachable by the link ``linked/own``."""
    (tmp_path / "linked").symlink_to("real")
    return script(tmp_path / "real" / "own", "print(1)")


@pytest.mark.parametrize(
    ("word", "moved"),
    [
        ("{own}", "{there}"),
        ("{own}/", "{there}/"),
        ("{own}/x", "{there}/x"),
        ("--root={own}", "--root={there}"),
        ("--root='{own}'", "--root='{there}'"),
        ("-I{own}/include", "-I{there}/include"),
        ("{own}:/usr/x", "{there}:/usr/x"),
        ("/usr/x:{own}/a:{own}", "/usr/x:{there}/a:{there}"),
        ("{own}/a,{own}/b c", "{there}/a,{there}/b c"),
        ("{{big:{own}/a|{own}}}", "{{big:{there}/a|{there}}}"),
        ("{linked}/x", "{there}/x"),
        ("--root={linked}:{own}", "--root={there}:{there}"),
        ("{own}/../own/x", "{there}/x"),
        ("{own}/../other/x", "{own}/../other/x"),
        ("/mnt{own}/x", "/mnt{own}/x"),
        ("--data=/mnt{own}", "--data=/mnt{own}"),
        ("{own}-2/x", "{own}-2/x"),
        ("{own}2", "{own}2"),
        ("train.py", "train.py"),
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
