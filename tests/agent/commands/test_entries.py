"""Check that the list of commands matches the commands' own help and imports none of them."""

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from agent.cli import ENTRIES, Entry, app
from tests.support.programs import finished


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.name)
def test_an_entry_is_what_its_command_says_of_itself(entry: Entry) -> None:
    command = entry.load()
    assert command.name == entry.name
    first_paragraph = (command.help or "").split("\n\n")[0]
    assert " ".join(first_paragraph.split()) == entry.summary


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))


@pytest.mark.parametrize(
    "path",
    [path for entry in ENTRIES.values() for path in _commands(entry.load(), (entry.name,))],
    ids=" ".join,
)
def test_help_at_80_columns_cuts_no_option_and_swallows_no_word(path: tuple[str, ...]) -> None:
    command: Any = ENTRIES[path[0]].load()
    for name in path[1:]:
        command = command.commands[name]
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}).output
    words = set(re.sub(r"[│╭╮╰╯─]", " ", shown).split())
    run_together = re.sub(r"[│╭╮╰╯─\s]", "", shown)  # a long word may be broken over two lines
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert {*parameter.opts, *parameter.secondary_opts} <= words
        for word in (getattr(parameter, "help", None) or "").split():
            assert word in words or (len(word) > 20 and word in run_together)


def test_each_command_has_one_line_in_the_list() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    for entry in ENTRIES.values():
        assert f"{entry.name} " in shown
        assert entry.summary in shown


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [(["--help"], ""), (["--version"], ""), (["tpo"], " pydantic")],  # typer's own import
)
def test_what_needs_no_command_loads_none(arguments: list[str], loaded: str) -> None:
    code = f"import sys\nfrom agent.cli import app\napp({arguments!r}, standalone_mode=False)\n"
    check = (
        "import atexit, sys\n"
        "heavy = {'torch', 'numpy', 'sqlalchemy', 'pydantic', 'optuna', 'httpx2'}\n"
        "atexit.register(lambda: print('loaded:', *sorted(heavy & sys.modules.keys())))\n"
    )
    done = finished(sys.executable, "-c", check + code)
    assert done.stdout.splitlines()[-1] == f"loaded:{loaded}"


def test_a_misspelt_command_is_told_its_neighbour() -> None:
    with pytest.raises(Exception, match="Did you mean 'top'"):
        typer.main.get_command(app).main(["topp"], standalone_mode=False)
