import math
from pathlib import Path
from typing import Any

import pytest

from agent.menu.files import parse_menu
from agent.menu.rails import Rails
from agent.menu.trainer_table import evaluation_text
from agent.session.own_trainer import command_of
from autoresearch.errors import MenuError, SpecError
from tests.support.commands import command_spec, script
from tests.support.own_menus import OWN_MENU
from trainer.command.filling import filled
from trainer.schema import Command, CommandConfig, Measure

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


def test_it_says_what_a_score_can_be() -> None:
    said = menu(TRAINER.replace("unit =", "low = 0\nhigh = 9.5\nunit =")).measure
    assert said == Measure(unit="nats per token", low=0, high=9.5)
    assert said.limits == (0, 9.5)
    assert Measure(direction="maximise", low=0).limits == (-math.inf, 0)
    with pytest.raises(MenuError):
        menu(TRAINER.replace("unit =", "low = 2\nhigh = 1\nunit ="))


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
    assert measure.signed(-0.25) == "+0.2500"
    assert measure.signed_span(-0.2, 0.1) == "-0.1000 … +0.2000"
    text = TRAINER.replace("nats per token", "bits per byte") + 'bytes = "UTF-8 bytes"\n'
    assert menu(text).measure.short == "bpb"


def test_edits_tell_the_seed_and_the_length() -> None:
    text = """
command = ["python", "train.py", "{amp:--amp}", "{bias:--bias|--no-bias}"]
set_by = "edit"
edits = { SEED = "{seed}", MAX_STEPS = "{steps}" }
score = { pattern = 'val loss ([0-9.]+)' }
unit = "nats per token"
"""
    switches = "[constants]\nbias = true\namp = false\n"
    own = menu(text, REST.replace("[constants]\n", switches))
    assert own.trainer.tells_seed
    assert own.trainer.asked == {"amp", "bias", "seed", "steps"}
    assert str(own.campaign.budget) == "60 steps"
    with pytest.raises(MenuError):
        menu(text.replace("{amp:", "{mode:"), REST.replace("[constants]\n", switches))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"--lr={lr}", ', ""),
        ("{warm}", "{warmth}"),
        ('"nats per token"', '"bits per byte"'),
        ("([0-9.]+)', take", "[0-9.]+', take"),
        ("([0-9.]+)', take", "([0-9.]+', take"),
        (r"(\d+): loss", r"\d+: loss"),
        ("score = {", "score = { file = 'r.json',"),
        ("pattern = 'val loss ([0-9.]+)', take", "file = 'r.json', take"),
        ("score = { pattern = 'val loss ([0-9.]+)',", "score = { file = '../r', key='x',"),
        ('unit = "nats per token"', ""),
        ('SEED = "', 'API_KEY = "'),
        ('SEED = "', 'HOME = "'),
        ('unit = "', 'preload = ["torch"]\nunit = "'),
        ('unit = "', 'values = "json"\nunit = "'),
        ('unit = "', 'wishes = 1\nunit = "'),
        ('unit = "', 'edits = { SEED = "{seed}" }\nunit = "'),
        ('unit = "', 'set_by = "edit"\nedits = { lr = "{seed}" }\nunit = "'),
        ('unit = "', 'set_by = "edit"\nedits = { SEED = "{sed}" }\nunit = "'),
        ("{lr}", "{lr:.3f}"),
        ("{lr}", "{lr"),
        ("{lr}", "{lr:--{depth}}"),
        ("depth", "seed"),
        ("[knobs.lr]", '[knobs."l r"]'),
        ('mode = "plain"', "lr = 1"),
        ("[constants]", '[campaign]\ncorpus = "stdlib"\n[constants]'),
        ("[constants]", '[campaign]\nbudget = "30 seconds"\n[constants]'),
        ("default = 2", 'default = 2\nreads = "lr"'),
    ],
)
def test_what_cannot_be_run_is_refused(old: str, new: str) -> None:
    assert old in TRAINER + REST
    with pytest.raises(MenuError):
        menu(TRAINER.replace(old, new, 1), REST.replace(old, new))


CHECK = """
[score.check]
command = ["{python}", "check.py", "{out}", "{lr}"]
file = "checked.json"
key = "loss"
"""


def test_a_checks_command_is_filled_and_its_score_is_the_trials(tmp_path: Path) -> None:
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
def test_a_check_that_cannot_be_used_is_refused(table: str) -> None:
    with pytest.raises(MenuError):
        parse_menu(f"{OWN_MENU}\n{table}\n", "x")


def test_a_check_is_for_a_command() -> None:
    knobs = OWN_MENU[OWN_MENU.index("[knobs") :]
    with pytest.raises(MenuError):
        parse_menu(f'name = "x"\n{knobs}{CHECK}', "x")
