"""Test a menu command's words for booleans, and the constants that it also edits."""

from __future__ import annotations

import pytest

from agent.menu.files import parse_menu
from autoresearch.errors import MenuError

MENU = """
name = "own"
[trainer]
command = ["python", "train.py", {words}]
score = {{ pattern = 'loss ([0-9.]+)' }}
unit = "loss"
{more}
[knobs.lr]
type = "float"
low = 0.1
high = 1.0
default = 0.5
[knobs.amp]
type = "choice"
choices = [true, false]
default = false
[constants]
bias = true
"""


def menu(words: str, more: str = "") -> str:
    return MENU.format(words=words, more=more)


def test_a_switch_reaches_the_command() -> None:
    read = parse_menu(menu('"--lr={lr}", "{amp:--amp}", "{bias:--bias|--no-bias}"'), "here")
    assert read.trainer is not None
    assert read.trainer.asked == {"lr", "amp", "bias"}


def test_edits_tell_the_seed_and_the_length() -> None:
    text = menu("", 'set_by = "edit"\nedits = { SEED = "{seed}", N = "{steps}" }')
    read = parse_menu(text, "here")
    assert read.trainer is not None
    assert read.trainer.tells_seed
    assert str(read.campaign.budget) == "60 steps"


@pytest.mark.parametrize(
    ("words", "more", "clause"),
    [
        ('"{lr:--lr}", "{amp}"', "", "lr is neither"),
        ('"{lr}", "{amp:--{bias}}"', "", "amp.*plain name|placeholder"),
        ('"{lr}", "{amp}"', 'edits = { SEED = "{seed}" }', 'set_by = "edit"'),
        ("", 'set_by = "edit"\nedits = { lr = "{seed}" }', "both a knob and in edits"),
        ("", 'set_by = "edit"\nedits = { SEED = "{sed}" }', "did you mean seed"),
    ],
)
def test_what_cannot_be_is_refused(words: str, more: str, clause: str) -> None:
    with pytest.raises(MenuError, match=clause):
        parse_menu(menu(words, more), "here")
