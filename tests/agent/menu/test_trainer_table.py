"""Test menus that name a command."""

from __future__ import annotations

from typing import Any

import pytest

from agent.menu.files import parse_menu
from agent.menu.rails import Rails
from autoresearch.errors import MenuError
from trainer.spec import CommandConfig, Measure

TRAINER = """
command = ["python", "train.py", "--lr={lr}", "--depth={depth}", "--w={warm}", "--n={steps}"]
env = { SEED = "{seed}" }
score = { pattern = 'val loss ([0-9.]+)', take = "last" }
unit = "nats per token"
curve = { pattern = 'iter (\\d+): loss ([0-9.]+)' }
"""
REST = """
[knobs.lr]
type = "float"
low = 1e-4
high = 1.0
scale = "log"
default = 0.1
[knobs.depth]
type = "int"
low = 1
high = 8
default = 2
[tied]
warm = "depth * 5"
[constants]
mode = "plain"
[[constraints]]
expr = "lr * depth <= 2"
"""


def menu(trainer: str = TRAINER, rest: str = REST) -> Any:
    return parse_menu(f'name = "own"\n[trainer]\n{trainer}\n{rest}', "own.toml")


def test_its_config_is_its_own_knobs_and_constants() -> None:
    own = menu()
    assert own.baseline == CommandConfig(
        values={"mode": "plain", "lr": 0.1, "depth": 2, "warm": 10}
    )
    assert own.measure == Measure(unit="nats per token")
    turned = own.apply(own.baseline, {"depth": 3, "lr": 1})
    assert turned.said == {"mode": "plain", "lr": 1.0, "depth": 3, "warm": 15}
    assert own.knob_values(turned) == {"lr": 1.0, "depth": 3}
    assert own.why_broken(turned, own.campaign.budget) is not None


def test_the_rails_hold_for_it() -> None:
    own = menu()
    rails = Rails(own, budget=own.campaign.budget)

    def verdict(changes: str) -> Any:
        return rails.check(f'{{"changes": {changes}, "reason": ""}}', own.baseline)

    assert verdict('{"lr": 0.2}').config == own.apply(own.baseline, {"lr": 0.2})
    assert verdict('{"lr": 5.0}').verdict.rail == "range"
    assert verdict('{"mode": "x"}').verdict.rail == "menu"
    assert verdict('{"warm": 1}').verdict.rail == "menu"
    assert verdict('{"lr": 1.0, "depth": 8}').verdict.rail == "cross"
    assert verdict('{"lr": 0.1}').verdict.rail == "novelty"


def test_a_script_that_ends_by_itself_is_run_once() -> None:
    own = menu(TRAINER.replace(', "--n={steps}"', ""))
    assert str(own.campaign.budget) == "1 run"
    assert own.campaign.horizon_steps is None
    assert str(menu().campaign.budget) == "60 steps"


def test_accuracy_is_to_grow() -> None:
    measure = menu(TRAINER.replace("nats per token", "accuracy")).measure
    assert measure.direction == "maximise"
    assert measure.text(-0.75) == "0.7500"
    assert measure.signed(-0.25) == "+0.2500"
    assert measure.span(-0.9, -0.7) == "0.7000 … 0.9000"
    assert measure.signed_span(-0.2, 0.1) == "-0.1000 … +0.2000"


def test_a_script_without_arguments_is_told_by_its_constants() -> None:
    text = """
command = ["python", "train.py"]
set_by = "edit"
edits = { SEED = "{seed}", MAX_STEPS = "{steps}" }
score = { pattern = 'val loss ([0-9.]+)' }
unit = "nats per token"
"""
    own = menu(text)
    assert own.trainer.tells_seed
    assert own.trainer.tells("steps")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"--lr={lr}", ', "", "knob lr does not reach the command"),
        ("{warm}", "{warmth}", "uses {warmth}, which is not defined .did you mean warm"),
        ('"nats per token"', '"bits per byte"', "needs a statement of how bytes"),
        ("([0-9.]+)', take", "[0-9.]+', take", "0 groups"),
        ("([0-9.]+)', take", "([0-9.]+', take", "not a valid regular expression"),
        (r"(\d+): loss", r"\d+: loss", "1 groups"),
        ("score = {", "score = { file = 'r.json',", "either"),
        ("pattern = 'val loss ([0-9.]+)', take", "file = 'r.json', take", "a file and a"),
        (
            "score = { pattern = 'val loss ([0-9.]+)',",
            "score = { file = '../r', key='x',",
            "not in",
        ),
        ('unit = "nats per token"', "", "unit: Field required"),
        ('SEED = "', 'API_KEY = "', "looks like a key"),
        ('SEED = "', 'HOME = "', "cannot be set"),
        ('unit = "', 'preload = ["torch"]\nunit = "', "preload needs"),
        ('unit = "', 'values = "json"\nunit = "', "add {values}"),
        ('unit = "', 'wishes = 1\nunit = "', "unknown key"),
        ("{lr}", "{lr:.3f}", "has words for true and false"),
        ("{lr}", "{lr", "brace"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(old: str, new: str, says: str) -> None:
    assert old in TRAINER
    with pytest.raises(MenuError, match=says):
        menu(TRAINER.replace(old, new, 1))


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (REST.replace("depth", "seed"), "built-in placeholder"),
        (REST.replace("[knobs.lr]", '[knobs."l r"]'), "cannot be a name"),
        (REST.replace('mode = "plain"', "lr = 1"), "lr is both a knob and a constant"),
        (REST + '[campaign]\ncorpus = "stdlib"\n', "brings its own text"),
        (REST + '[campaign]\nbudget = "30 seconds"\n', "does not reach the command"),
        (REST.replace("default = 2", 'default = 2\nreads = "lr"'), "remove its reads"),
    ],
)
def test_what_its_menu_cannot_hold(rest: str, says: str) -> None:
    with pytest.raises(MenuError, match=says):
        menu(rest=rest)


def test_bits_per_byte_are_claimed_with_how_bytes_are_counted() -> None:
    text = TRAINER.replace("nats per token", "bits per byte")
    own = menu(text + 'bytes = "UTF-8 bytes of the held-out file"\n')
    assert own.measure.short == "bpb"
