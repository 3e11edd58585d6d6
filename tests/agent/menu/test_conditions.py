"""A knob with ``when`` counts only where its condition holds: everywhere else configs are equal."""

import json
from random import Random

import pytest

from agent.menu.files import parse_menu
from agent.menu.rails import Rails
from agent.proposers.draws import Edits
from agent.proposers.llm.prompt import Prompter
from autoresearch.errors import MenuError
from tests.support.memories import constants, fresh_memory
from trainer.schema import Budget

KNOBS = """
name = "families"

[knobs.optimizer]
type = "choice"
choices = ["adamw", "muon"]
default = "adamw"

[knobs.muon_lr_ratio]
type = "float"
low = 0.1
high = 10.0
scale = "log"
default = 1.0
when = 'optimizer == "muon"'

[knobs.lr]
type = "float"
low = 1e-4
high = 1e-1
scale = "log"
default = 1e-3
"""
MENU = parse_menu(KNOBS + constants("lr"), "families.toml")
RAILS = Rails(MENU, budget=Budget())
MUON = {"optimizer": "muon", "muon_lr_ratio": 3.0}


def test_a_knob_that_does_not_count_makes_no_other_config() -> None:
    assert MENU.apply(MENU.baseline, {"muon_lr_ratio": 3.0}) == MENU.baseline
    muon = MENU.apply(MENU.baseline, MUON)
    assert MENU.knob_values(muon)["muon_lr_ratio"] == 3.0
    assert MENU.apply(muon, {"optimizer": "adamw"}) == MENU.baseline


def test_the_rails_record_it_as_no_change() -> None:
    raw = json.dumps({"changes": {"muon_lr_ratio": 3.0, "lr": 0.01}, "reason": "why not"})
    checked = RAILS.check(raw, MENU.baseline)
    assert checked.proposal is not None
    assert checked.verdict.allowed
    assert checked.proposal.changes == {"lr": 0.01}
    assert checked.proposal.restated == {"muon_lr_ratio": 3.0}
    alone = RAILS.check(
        json.dumps({"changes": {"muon_lr_ratio": 3.0}, "reason": ""}), MENU.baseline
    )
    assert alone.verdict.rail == "novelty"
    both = RAILS.check(json.dumps({"changes": MUON, "reason": "why not"}), MENU.baseline)
    assert both.proposal is not None
    assert both.proposal.changes == MUON


def test_draws_set_it_only_where_it_counts() -> None:
    edits = Edits.of(fresh_memory(MENU))
    rng = Random(0)
    drawn = [edits.whole(rng) for _ in range(200)]
    ratios = [edit for edit in drawn if "muon_lr_ratio" in edit]
    assert ratios
    assert all(edit["optimizer"] == "muon" for edit in ratios)
    assert any("muon_lr_ratio" not in edit for edit in drawn)


def test_the_prompt_has_the_condition() -> None:
    system = Prompter(Budget()).prompt(fresh_memory(MENU)).messages[0].content
    assert 'optimizer == "muon"' in system


@pytest.mark.parametrize(
    "when", ["muon_lr_ratio > 1", "nothing == 1", "optimizer + 1", "lr", "import os"]
)
def test_a_condition_that_cannot_be_read_is_refused(when: str) -> None:
    text = KNOBS.replace('optimizer == "muon"', when)
    with pytest.raises(MenuError, match="when"):
        parse_menu(text + constants("lr"), "families.toml")


def test_a_menu_file_keeps_it() -> None:
    assert MENU.knobs["muon_lr_ratio"].model_dump()["when"] == 'optimizer == "muon"'
    assert "when" not in MENU.knobs["lr"].model_dump()


def test_a_command_has_the_default_of_a_knob_that_does_not_count() -> None:
    text = """
name = "own"

[trainer]
command = ["python", "train.py", "--model={model}", "--margin={margin}", "--steps={steps}"]
score = { pattern = 'score ([0-9.]+)' }
unit = "error"

[knobs.model]
type = "choice"
choices = ["trees", "svm"]
default = "trees"

[knobs.margin]
type = "float"
low = 0.1
high = 10.0
default = 1.0
when = 'model == "svm"'

[constants]

[campaign]
budget = "60 steps"
"""
    menu = parse_menu(text, "own.toml")
    assert menu.apply(menu.baseline, {"margin": 2.0}) == menu.baseline
    svm = menu.apply(menu.baseline, {"model": "svm", "margin": 2.0})
    assert svm.value("margin") == 2.0
    assert menu.apply(svm, {"model": "trees"}).config_hash == menu.baseline.config_hash
