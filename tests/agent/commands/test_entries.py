"""The list of commands says what the commands say, and loads none of them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from agent.cli import app
from agent.commands.entries import ENTRIES, Entry


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.name)
def test_an_entry_is_what_its_command_says_of_itself(entry: Entry) -> None:
    command = entry.load()
    assert command.name == entry.name
    first_paragraph = (command.help or "").split("\n\n")[0]
    assert " ".join(first_paragraph.split()) == entry.summary


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [(["--help"], ""), (["--version"], ""), (["tpo"], " pydantic")],  # that one is typer's own
)
def test_what_needs_no_command_loads_none(arguments: list[str], loaded: str) -> None:
    code = f"import sys\nfrom agent.cli import app\napp({arguments!r}, standalone_mode=False)\n"
    check = (
        "import atexit, sys\n"
        "heavy = {'torch', 'numpy', 'sqlalchemy', 'pydantic', 'optuna', 'httpx2'}\n"
        "atexit.register(lambda: print('loaded:', *sorted(heavy & sys.modules.keys())))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", check + code], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == f"loaded:{loaded}"


def test_a_misspelt_command_is_told_its_neighbour() -> None:
    with pytest.raises(Exception, match="Did you mean 'top'"):
        typer.main.get_command(app).main(["topp"], standalone_mode=False)
