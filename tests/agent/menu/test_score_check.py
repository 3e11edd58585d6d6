"""Check the table of a check: what it needs, what it refuses, and the command it becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.menu.files import parse_menu
from agent.menu.trainer_table import evaluation_text
from agent.workbench.own_trainer import command_of
from autoresearch.errors import MenuError, SpecError
from tests.support.commands import command_spec, script
from tests.support.own_menus import OWN_MENU
from trainer.command.filling import filled
from trainer.spec import Command

CHECK = """
[score.check]
command = ["{python}", "check.py", "{out}", "{lr}"]
file = "checked.json"
key = "loss"
"""


def test_its_command_is_filled_and_its_score_is_the_trials(tmp_path: Path) -> None:
    menu = parse_menu(OWN_MENU + CHECK, "x")
    assert menu.trainer is not None
    script(tmp_path, "")
    with pytest.raises(SpecError):
        command_of(menu.trainer, tmp_path)  # there is no check.py
    script(tmp_path, "", "check.py")
    command = command_of(menu.trainer, tmp_path)
    assert Command.model_validate_json(command.model_dump_json()) == command
    check = command.checking
    assert check is not None
    assert check.checking is None
    assert (check.score.file, check.score.key, check.edited) == ("checked.json", "loss", None)
    spec = command_spec(command=command, values={"lr": 0.25})
    argv = filled(spec, check, Path("/out"), 1, Path("/work")).argv
    assert argv[1:] == ("check.py", "/out", "0.25")
    assert evaluation_text(menu.trainer) != evaluation_text(parse_menu(OWN_MENU, "x").trainer)  # type: ignore[arg-type]


def test_a_script_that_is_checked_need_not_print_a_score() -> None:
    lines = [line for line in OWN_MENU.splitlines() if not line.startswith("score")]
    menu = parse_menu("\n".join(lines) + CHECK, "x")
    assert menu.trainer is not None
    assert menu.trainer.score.file == "checked.json"
    with pytest.raises(MenuError):
        parse_menu("\n".join(lines), "x")


@pytest.mark.parametrize(
    "table",
    [
        "[score.check]\npattern = 'loss (.*)'",
        "[score.check]\ncommand = []\npattern = 'loss (.*)'",
        "[score.check]\ncommand = ['sh', 'check.sh']",
        "[score.check]\ncommand = ['sh', 'check.sh']\npattern = 'loss'",
        "[score.check]\ncommand = ['sh', 'check.sh']\npattern = 'loss (.*)'\nfile = 'a'\nkey = 'b'",
        "[score.check]\ncommand = ['sh', 'check.sh']\nfile = '../a.json'\nkey = 'b'",
        "[score.check]\ncommand = ['sh', '{lrr}']\npattern = 'loss (.*)'",
        "[score.check]\ncommand = ['sh', '{values}']\npattern = 'loss (.*)'",
        "[score.check]\ncommand = ['sh', '{lr:a|b}']\npattern = 'loss (.*)'",
        "[score.check]\ncommand = ['sh', '{']\npattern = 'loss (.*)'",
        "[score.check]\ncommand = ['sh']\npattern = 'loss (.*)'\nunit = 'nats'",
        "[score.other]\ncommand = ['sh']\npattern = 'loss (.*)'",
    ],
)
def test_a_table_that_cannot_be_used_is_refused(table: str) -> None:
    with pytest.raises(MenuError):
        parse_menu(f"{OWN_MENU}\n{table}\n", "x")


def test_it_is_for_a_command(tmp_path: Path) -> None:
    knobs = OWN_MENU[OWN_MENU.index("[knobs") :]
    with pytest.raises(MenuError):
        parse_menu(f'name = "x"\n{knobs}{CHECK}', "x")
