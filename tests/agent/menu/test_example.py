"""The commented example and the worked examples of docs/menus.md can be used as they are."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.commands.night.menu import app
from agent.menu.files import load_menu, parse_menu
from agent.menu.trainer_table import BUILT_IN, TrainerTable

PAGE = (Path(__file__).parents[3] / "docs" / "menus.md").read_text("utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("text", BLOCKS, ids=lambda text: tomllib.loads(text)["name"])
def test_a_worked_example_is_a_menu(text: str) -> None:
    assert parse_menu(text, "the page").trainer is not None


def test_the_page_names_every_kind_of_example_and_every_placeholder() -> None:
    assert {tomllib.loads(text)["name"] for text in BLOCKS} >= {
        *("small", "yaml", "hydra", "own-json", "notebook"),
    }
    assert all(f"`{{{name}}}`" in PAGE for name in BUILT_IN)


def test_a_new_menu_is_an_example_of_every_table(tmp_path: Path) -> None:
    path = tmp_path / "menu.toml"
    assert CliRunner().invoke(app, ["new", "-o", str(path)]).exit_code == 0
    menu = load_menu(str(path))
    assert menu.knobs
    assert menu.ties
    assert menu.constants
    assert menu.constraints
    text = path.read_text("utf-8")
    assert CliRunner().invoke(app, ["new"]).stdout == text
    said = {
        "command",
        "directory",
        "score",
        "direction",
        "curve",
        "env",
        "reads",
        "values",
        "set_by",
    }
    assert said <= TrainerTable.model_fields.keys()
    assert all(re.search(rf"^(# )?{key} = ", text, re.MULTILINE) for key in said)
