"""Requirements of a command on a node, besides its script."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.commands import command, script
from trainer.command.program import environment_of
from trainer.executors.ray.facts import find_facts, unfit
from trainer.executors.ray.needs import Needs, command_here, portable_program


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return script(tmp_path / "own", "print(1)")


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
