import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.menu.files import parse_menu
from agent.menu.rails import Rails
from agent.menu.scripts.draft import draft_of
from agent.menu.scripts.draft_text import toml_of
from agent.menu.scripts.metrics import Candidate
from agent.menu.scripts.option import Option
from agent.menu.scripts.reading import script_of
from agent.menu.scripts.reported import Reported
from agent.session.own_trainer import command_of
from autoresearch.errors import MenuError
from trainer.command.filling import filled
from trainer.schema import CommandConfig, TrialSpec
from trainer.script.editing import edited

SCRIPT = """\
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
def act(x):
    # autoresearch: slot activation
    x = torch.relu(x)
    return x
    # autoresearch: end
for step in range(args.steps):
    print(f"step {step}: train loss {args.lr * step}")
print(f"val loss {act(torch.tensor(args.lr))}")
"""
KEY = "code.activation"
OPTIONS = (
    Option("lr", 1e-3, "--lr={lr}", kind="float"),
    Option("steps", 60, "--steps={steps}", kind="int"),
    Option("seed", 0, "--seed={seed}", kind="int"),
)


def drafted(script: Path, menu: Path | None = None) -> str:
    """Return the menu that is drafted from a script, whose options are known."""
    score = Candidate("val loss", "val loss", "minimise")
    draft = draft_of(script_of(script, Reported(OPTIONS)), menu)
    return toml_of(replace(draft, score=score, direction="minimise"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_draft_has_a_table_for_each_region_and_can_be_used(script: Path) -> None:
    menu = parse_menu(drafted(script, script.with_name("menu.toml")), "x")
    knob = menu.code_knobs[KEY]
    assert knob.default == "x = torch.relu(x)\nreturn x"
    assert menu.baseline.value(KEY) == knob.default
    assert "lr" in menu.knobs
    assert menu.trainer is not None
    assert menu.trainer.slots == ("activation",)
    changed = menu.apply(menu.baseline, {KEY: "return x.clamp(0)  # the same"})
    assert changed.value(KEY) == "return x.clamp(0)"
    assert changed.config_hash != menu.baseline.config_hash
    command = command_of(menu.trainer, script.parent)
    assert isinstance(changed, CommandConfig)
    spec = TrialSpec(trial_id="1", config=changed, seed=7, command=command, budget="60 steps")
    filling = filled(spec, command, Path("/out"), 1)
    assert filling.edits == {KEY: "return x.clamp(0)"}
    assert not any("clamp" in word for word in filling.argv)
    assert "    return x.clamp(0)\n    # autoresearch: end" in edited(SCRIPT, filling.edits)


@pytest.mark.parametrize(
    "code",
    [
        "import os", "return open('x')", "return act(x)", "return x.__class__", "return (x",
        "lr = 1\nreturn x", "return torch.load(x)", "\n".join(["x = x"] * 50), "",
        f"return '{3000 * 'y'}'",
    ],
)  # fmt: skip
def test_the_rails_refuse_code_that_reaches_further(script: Path, code: str) -> None:
    menu = parse_menu(drafted(script), "x")
    checked = Rails(menu, budget=menu.campaign.budget).check(
        json.dumps({"changes": {KEY: code}, "reason": "r"}), menu.baseline
    )
    assert checked.verdict.rail == "code"
    assert checked.config is None


def test_constants_inside_a_region_are_no_knobs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("LR = 1e-3\n# autoresearch: slot a\nWD = 0.1\n# autoresearch: end\n")
    names = {option.name for option in script_of(script, Reported(), "edit").options}
    assert names == {"LR"}
    script.write_text("LR = 1e-3\n# autoresearch: slot a\nWD = 0.1\n")
    with pytest.raises(MenuError):
        script_of(script, Reported(), "edit")


@pytest.mark.parametrize(
    "table",
    ["names = ['x']", "default = 3", "default = 'import os'", "default = 'x = 1'\nnames = 'x'",
     "default = 'x = 1'\nsignature = 'f'", "default = 'lr = 1'"],
)  # fmt: skip
def test_a_table_that_cannot_be_used_is_refused(script: Path, table: str) -> None:
    text = drafted(script)
    begin, rest = text.split("[code.activation]", 1)
    end = rest.index("\n\n")
    with pytest.raises(MenuError):
        parse_menu(f"{begin}[code.activation]\n{table}{rest[end:]}", "x")
