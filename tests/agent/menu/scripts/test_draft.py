import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from agent.commands.night.menu import app
from agent.menu.files import ProxyMenu, load_menu
from agent.menu.scripts.draft import constraints_asserted
from agent.menu.scripts.reading import read_script
from agent.menu.trainer_table import TrainerTable
from agent.workbench.own_trainer import OwnTrainer
from autoresearch.errors import AutoresearchError, MenuError

ARGUMENTS = """
import argparse
from model import Net
from settings import SEQ

p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--min-lr", type=float, default=1e-4)
p.add_argument("--width", type=int, default=64, help="of the stream {wide}")
p.add_argument("--n-head", type=int, default=4)
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--tied", action="store_true")
p.add_argument("--epochs", type=int, default=10)
p.add_argument("--block-size", type=int, default=128)
p.add_argument("--out", default="out")
p.add_argument("--seed", type=int, default=1)
p.add_argument("--values", type=float, default=0.5)
p.add_argument("--wandb", action="store_true")
p.add_argument("--data", required=True)
args = p.parse_args()
tokens = args.batch_size * SEQ
assert tokens % 64 == 0
assert args.width % 100 == 0
for step in range(3):
    print(f"iter {step}: loss {step}")
print(f"val loss {0.5}")
"""
MODEL = """
class Net:
    def __init__(self, config):
        assert config.width % config.n_head == 0
"""

CONSTANTS = """\
SEED = 1337
STEPS = 500  # of the optimizer
LR = 0.04    # of matrices
BETAS = (0.8, 0.95)
PATTERN = "SSSL"
step = 0
step += 1
print(f"step {step} loss {LR}")
print(f"val_bpb: {LR * STEPS + SEED:.6f}")
"""


_HEAD = "import argparse\np = argparse.ArgumentParser()\n"
_LR = 'p.add_argument("--lr", type=float, default=1e-3)\n'
_TAIL = 'a = p.parse_args()\nprint(f"val_loss: {a.lr}")\n'


@pytest.fixture
def script(tmp_path: Path) -> Path:
    written(tmp_path, MODEL, "model.py")
    written(tmp_path, "SEQ = 2\n", "settings.py")
    return written(tmp_path, ARGUMENTS)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(
        app, ["from-script", "--no-dry-start", *map(str, arguments)], env={"COLUMNS": "200"}
    )
    assert result.exception is None, result.output
    return result.stdout


def refused(kind: type[AutoresearchError], *arguments: object) -> str:
    result = CliRunner().invoke(app, ["from-script", *map(str, arguments)])
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


class Draft(NamedTuple):
    """A menu as the loop would load it, its trainer, and the command's report."""

    menu: ProxyMenu
    trainer: TrainerTable
    report: dict[str, Any]


def drafted(script: Path, *arguments: object) -> Draft:
    path = script.parent / "menu.toml"
    path.unlink(missing_ok=True)
    report = json.loads(run(script, "-o", path, "--json", *arguments))
    menu = load_menu(str(path))
    assert menu.trainer is not None
    return Draft(menu, menu.trainer, report)


def written(folder: Path, text: str, name: str = "train.py") -> Path:
    """Write a script, and return its path."""
    (folder / name).write_text(text, "utf-8")
    return folder / name


def draft_of(folder: Path, text: str, *arguments: object) -> Draft:
    """Draft a menu from a script of this text."""
    return drafted(written(folder, text), *arguments)


def test_options_become_knobs_constants_and_what_is_given(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tmp_path / "bin"
    found.mkdir()
    (found / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(found), prepend=os.pathsep)
    menu, trainer, report = drafted(script)
    assert list(menu.knobs) == ["lr", "min_lr", "width", "n_head", "batch_size", "tied", "values_"]
    assert menu.constants == {"epochs": 10, "block_size": 128}
    assert report["given"] == {"out": "{out}", "seed": "{seed}"}
    assert trainer.command == (
        "python",
        "train.py",
        "--lr={lr}",
        "--min-lr={min_lr}",
        "--width={width}",
        "--n-head={n_head}",
        "--batch-size={batch_size}",
        "{tied:--tied}",
        "--epochs={epochs}",
        "--block-size={block_size}",
        "--out={out}",
        "--seed={seed}",
        "--values={values_}",
    )
    assert menu.knobs["width"].doc == "of the stream {wide}"
    assert str(menu.campaign.budget) == "1 run"
    assert (trainer.unit, trainer.directory) == ("val loss", ".")
    assert trainer.curve is not None
    assert report["to_do"] == [
        "data (line 19): the script asks for it and has no default; add it to the command"
    ]


def test_the_script_s_assertions_are_constraints(script: Path) -> None:
    """An assertion that fails at the defaults, as one on width does here, is not a constraint."""
    menu, *_ = drafted(script)
    assert {one.expr for one in menu.constraints} == {
        "batch_size * 2 % 64 == 0",
        "width % n_head == 0",
        "min_lr <= lr",
    }


def test_an_assertion_on_an_unknown_name_takes_no_time(script: Path) -> None:
    """Names within names before the unknown one would be 5**8 expressions."""
    script.write_text(f"{ARGUMENTS}x = measured(x, x, x, x, x)\nassert x > 0\n")
    begun = time.process_time()
    assert len(constraints_asserted(read_script(script), {"width": 64, "n_head": 4})) == 1
    assert time.process_time() - begun < 2


def test_what_it_is_started_with_by_hand_is_the_default(script: Path) -> None:
    words = [
        "--lr=0.01",
        "--width",
        "96",
        "--tied",
        "--data=text",
        "--wandb",
        "other",
        "--new=1{a}",
    ]
    menu, trainer, report = drafted(script, "--", *words)
    assert menu.defaults | {"lr": 0.01, "width": 96, "tied": True} == menu.defaults
    assert {"data": "text", "wandb": True}.items() <= menu.constants.items()
    assert trainer.command[2:4] == ("other", "--new=1{{a}}")
    assert report["to_do"] == []
    refused(MenuError, script, "--", "--lr=fast")


def test_what_the_script_cannot_start_without_is_in_the_command(tmp_path: Path) -> None:
    menu, trainer, _ = draft_of(
        tmp_path,
        _HEAD + _LR + 'p.add_argument("--train", default=os.environ.get("TRAIN"))\n'
        'p.add_argument("--jobs", type=int, default=os.cpu_count())\n'
        'p.add_argument("--out", default=os.environ.get("OUT"))\n'
        'p.add_argument("--seed", type=int, default=int(time.time()))\n'
        'p.add_argument("--max-depth", type=int)\np.add_argument("--eta", type=float)\n' + _TAIL,
        "--",
        "--train=a",
        "--jobs=1",
        "--max-depth",
        "5",
        "--eta=1e-1",
    )
    assert menu.constants == {"train": "a"}
    assert {"--out={out}", "--seed={seed}"} <= set(trainer.command)
    assert {"max_depth": 5, "eta": 0.1}.items() <= menu.defaults.items()


def test_nanogpt_s_way_of_overriding(tmp_path: Path) -> None:
    written(tmp_path, "n_layer = 6\ndataset = 'chars'\nunknown = 1\nseed = 1337\n", "small.py")
    menu, trainer, report = draft_of(
        tmp_path,
        "max_iters = 600000\neval_interval = 2000\nn_layer = 12\nbias = False\ndataset = 'web'\n"
        "lr_decay_iters = 600000\nwarmup_iters = 2000\n"
        "exec(open('configurator.py').read())\nmax_iters //= 2\nprint(f'val loss {n_layer}')\n",
        "--",
        "small.py",
        "--max_iters=100",
    )
    assert (menu.defaults["n_layer"], menu.constants) == (6, {"dataset": "chars"})
    words = ("small.py", "--max_iters={steps}", "--eval_interval={steps}")
    assert trainer.command[2:5] == words
    assert (str(menu.campaign.budget), menu.campaign.horizon_steps) == ("100 steps", 1000)
    assert trainer.tells_seed
    assert any("warmup_iters is 2000, but a trial has 100 steps" in one for one in report["notes"])
    assert report["lengths"] == []  # 100 was given by hand
    assert "#   max_iters = 100" in report["toml"]
    assert "{steps}, so that it scores where a trial ends" in report["toml"]


def test_constants_are_edited(tmp_path: Path) -> None:
    menu, trainer, report = draft_of(tmp_path, CONSTANTS)
    assert report["set_by"] == "edit"
    assert list(menu.knobs) == ["LR", "BETAS_0", "BETAS_1", "PATTERN"]
    assert trainer.set_by == "edit"
    assert trainer.edits == {"SEED": "{seed}", "STEPS": "{steps}"}
    assert report["lengths"] == ["STEPS is 500 in the script, and a trial has 60"]
    assert "# the value of {steps}; STEPS is 500 in the script" in report["toml"]
    assert "#   STEPS = 500  (line 2): {steps}, how long a trial is" in report["toml"]
    assert (trainer.tells_seed, trainer.unit) == (True, "val_bpb")


@pytest.mark.parametrize(("constants", "knobs"), [(5, ["lr"]), (6, [])])
def test_numbers_in_calls_are_knobs_where_a_script_names_few(
    tmp_path: Path, constants: int, knobs: list[str]
) -> None:
    named = [f"rate_{i}" for i in range(constants)]
    menu, trainer, _ = draft_of(
        tmp_path,
        "".join(f"{name} = 0.3\n" for name in named)
        + "torch.manual_seed(1)\nAdam(model, lr=1e-3)\nprint(f'val loss {rate_0}')\n",
    )
    assert list(menu.knobs) == named + knobs
    assert trainer.edits == {"torch_manual_seed": "{seed}"}


def test_no_seed_is_a_knob(tmp_path: Path) -> None:
    """A search over seeds would keep luck."""
    menu, *_ = draft_of(
        tmp_path,
        "lr = 1e-3\ndata_seed = 4\nrng.seed(5)\nForest(random_state=7)\nTree(random_state=8)\n"
        "print(f'val loss {lr}')\n",
    )
    assert list(menu.knobs) == ["lr"]
    assert len(menu.constants) == 4


@pytest.mark.parametrize(
    ("last", "edits"),
    [("", {}), (" or step == steps - 1", {"steps": "{steps}", "eval_interval": "{steps}"})],
)
@pytest.mark.parametrize(
    "head", ["steps = 500\nfor step in range(steps)", "for step in range(500)"]
)
def test_a_script_that_scores_before_its_last_step_only_keeps_its_length(
    tmp_path: Path, head: str, last: str, edits: dict[str, str]
) -> None:
    last = last.replace("steps - 1", "499" if "500)" in head else "steps - 1")
    menu, trainer, _ = draft_of(
        tmp_path,
        f"eval_interval = 50\nlr = 1e-3\n{head}:\n    train(lr)\n"
        f"    if step % eval_interval == 0{last}:\n        print(f'val loss {{lr}}')\n",
    )
    assert (trainer.edits, list(menu.knobs)) == (edits, ["lr"])


@pytest.mark.parametrize(("every", "steps"), [("500", 501), ("20", 60), ("500 == 0 or last", 60)])
def test_a_trial_lasts_until_the_score_is_printed(tmp_path: Path, every: str, steps: int) -> None:
    menu, *_ = draft_of(
        tmp_path,
        "max_steps = 5000\nlr = 1e-3\nlast = False\nfor step in range(max_steps):\n"
        f"    if step and step % {every}:\n        print(f'val loss {{lr}}')\n",
    )
    assert str(menu.campaign.budget) == f"{steps} steps"


def test_the_environment_is_told(tmp_path: Path) -> None:
    _, trainer, _ = draft_of(
        tmp_path,
        "import os\nlr = float(os.environ.get('LR', '0.1'))\nseed = os.environ.get('SEED', 1)\n"
        "tokenizer = os.environ.get('TOKENIZER_PATH', 'bpe.model')\n"
        "print(f'val loss {lr}')\n",
    )
    assert trainer.env == {"LR": "{LR}", "SEED": "{seed}"}


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    """Text from a script is written to a TOML file and a terminal, so it must be escaped."""
    text = "STYLE = 'a\\nb\"]'\nMODE = 'x'  # (x, y)\nprint(f'val \\'loss\\' \" {LR}')\n"
    menu, *_ = draft_of(tmp_path, f'LR = 0.1  # ]\u202e\x1b[31m """\n{text}')
    assert menu.knobs["LR"].doc.isprintable()
    assert all(line.isprintable() for line in menu.toml.splitlines())


def test_another_file_is_not_overwritten(script: Path) -> None:
    path = script.parent / "menu.toml"
    path.write_text("mine", encoding="utf-8")
    refused(MenuError, script, "-o", path)
    assert path.read_text("utf-8") == "mine"
    path.unlink()
    said = run(script, "-o", path)
    assert "7 knobs" in said
    assert run(script) == path.read_text("utf-8").replace(
        'directory = "."', f'directory = "{script.parent}"'
    )


_CLICK = """
import click
@click.group()
def cli(): pass
@cli.command()
@click.argument("checkpoint")
@click.option("--beam", default=4)
def evaluate(checkpoint, beam): pass
@cli.command()
@click.option("--lr", default=1e-3)
def train(lr): click.echo(f"val_loss: {lr}")
cli()
"""
_FIRE = """
import fire
def train(lr=1e-3): print(f"val_loss: {lr}")
def evaluate(beam=4): pass
class Commands:
    def __init__(self): pass
    def train(self, width=64): pass
"""
_ABSL = """
from absl import app, flags
flags.DEFINE_float("lr", 1e-3, "rate")
flags.DEFINE_bool("amp", True, "halves")
flags.DEFINE_integer("width", 1e2, "of the stream")
print(f"val_loss: {flags.FLAGS.lr}")
"""
_TYRO = """
from dataclasses import dataclass, field
import tyro
@dataclass
class Optim:
    lr: float = 1e-3
    use_ema: bool = True
@dataclass
class Args:
    optim: Optim = field(default_factory=Optim)
print(f"val_loss: {tyro.cli(Args).optim.lr}")
"""
_SUBPARSERS = """
p.add_argument("--width", type=int, default=64)
s = p.add_subparsers()
e = s.add_parser("eval")
e.add_argument("--lr", type=float, default=5.0)
t = s.add_parser("train")
t.add_argument("--lr", type=float, default=1e-3)
"""


_UNTYPED = _HEAD + _LR + 'p.add_argument("--decay", default=0.1)\n' + _TAIL
_CAST = _UNTYPED + "decay = float(a.decay)\n"
_FREE = _CLICK.replace('@click.argument("checkpoint")\n', "")
_SWITCH = "{optim_use_ema:--optim.use-ema|--optim.no-use-ema}"


@pytest.mark.parametrize(
    ("text", "given", "words"),
    [
        (_FIRE + 'fire.Fire({"fit": train})\n', (), ("fit", "--lr={lr}")),
        (_FIRE + "fire.Fire(Commands)\n", (), ("train", "--width={width}")),
        (_FIRE + "fire.Fire()\n", (), ("train", "--lr={lr}")),
        (_CLICK, (), ("train", "--lr={lr}")),
        (_ABSL, (), ("--lr={lr}", "{amp:--amp|--noamp}", "--width={width}")),
        (_TYRO, (), ("--optim.lr={optim_lr}", _SWITCH)),
        (_HEAD + _SUBPARSERS + _TAIL, (), ("--width={width}", "train", "--lr={lr}")),
        (_UNTYPED, (), ("--lr={lr}",)),
        (_CAST, (), ("--lr={lr}", "--decay={decay}")),
        (_FREE, ("--", "train"), ("train", "--lr={lr}")),
        (_FREE.replace("train(", "learn("), ("--", "learn"), ("learn", "--lr={lr}")),
        (_FREE, ("--", "evaluate"), ("evaluate", "--beam={beam}")),
    ],
)
def test_a_command_s_words_are_what_it_can_be_given_and_a_subcommand_stands_once(
    tmp_path: Path, text: str, given: tuple[str, ...], words: tuple[str, ...]
) -> None:
    _, trainer, report = draft_of(tmp_path, text, *given)
    assert trainer.command[2:] == words
    assert not report["to_do"]


@pytest.mark.parametrize(
    ("place", "imports", "words", "directory"),
    [
        ("pkg/t.py", "from .core import x", ("-m", "pkg.t"), "."),
        ("pkg/__main__.py", "from .core import x", ("-m", "pkg"), "."),
        ("pkg/__main__.py", "import torch", ("__main__.py",), "pkg"),
        ("scripts/t.py", "from nano.core import x", ("-m", "scripts.t"), "."),
        ("scripts/t.py", "import torch", ("t.py",), "scripts"),
    ],
)
def test_a_script_of_a_package_is_started_as_its_module(
    tmp_path: Path, place: str, imports: str, words: tuple[str, ...], directory: str
) -> None:
    for folder in ("pkg", "nano", "scripts"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, "x = 1\n", "core.py")
    path = written(tmp_path, f"{imports}\n{_HEAD}{_LR}{_TAIL}", place)
    run(path, "-o", tmp_path / "menu.toml")
    trainer = load_menu(str(tmp_path / "menu.toml")).trainer
    assert trainer is not None
    assert (trainer.command[1:-1], trainer.directory) == (words, directory)


@pytest.mark.parametrize(
    "text",
    [
        "from transformers import HfArgumentParser\nfrom config import A\n"
        'a = HfArgumentParser((A,))\nprint(f"val_loss: {a}")\n',
        _HEAD + _LR + 'p.add_argument("--width", type=int, default=1e3)\n' + _TAIL,
    ],
)
def test_a_whole_float_is_an_integer_also_in_dataclasses(tmp_path: Path, text: str) -> None:
    fields = "from dataclasses import dataclass\n@dataclass\nclass A:\n    width: int = 1e3\n"
    written(tmp_path, fields, "config.py")
    menu, *_ = draft_of(tmp_path, text)
    default = menu.knobs["width"].default
    assert (default, type(default)) == (1000, int)


def test_a_score_that_an_imported_module_prints_is_found(tmp_path: Path) -> None:
    written(tmp_path, 'def test(x): print(f"val_loss: {x}")\n', "engine.py")
    text = f"from engine import test\n{_HEAD}{_LR}test(p.parse_args().lr)\n"
    _, trainer, report = draft_of(tmp_path, text)
    assert (trainer.unit, report["to_do"]) == ("val_loss", [])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("import hydra", ("hydra", "optim.lr={lr}")),
        ("import yaml\nyaml.safe_load(open('c.yaml'))", ("yaml", "{values}")),
        ("from fairseq import options\noptions.get_parser()", ("get_parser of fairseq",)),
        ("from trl import SFTConfig, TrlParser\nTrlParser((SFTConfig,))", ("SFTConfig of trl",)),
    ],
)
def test_what_is_not_read_is_named(tmp_path: Path, text: str, named: tuple[str, ...]) -> None:
    said = refused(MenuError, written(tmp_path, f"{text}\n"))
    _, _, report = draft_of(tmp_path, f"{text}\n{_HEAD}{_LR}{_TAIL}")
    for word in named:
        assert word in said
        assert any(word in note for note in report["notes"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ('print("val_loss:", a.lr)', 0, "0.001"),
        ("print('val_loss:', 1 / (a.lr - a.lr))", 3, "Zero"),
    ],
)
def test_a_draft_is_tried_once(tmp_path: Path, line: str, code: int, says: str) -> None:
    path = written(tmp_path, f"{_HEAD}{_LR}a = p.parse_args()\n{line}\n")
    menu = path.with_name("menu.toml")
    result = CliRunner().invoke(app, ["from-script", str(path), "-o", str(menu), "--json"])
    assert result.exit_code == code
    assert says in json.loads(result.stdout)["dry_start"]
    assert load_menu(str(menu)).knobs.keys() == {"lr"}


def test_a_menu_with_something_to_do_is_refused(tmp_path: Path) -> None:
    menu, _, report = draft_of(tmp_path, f"{_HEAD}{_LR}")
    assert report["to_do"]
    with pytest.raises(MenuError):
        OwnTrainer.of(str(tmp_path / "menu.toml"), menu, tmp_path / "runs")
