import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from agent.commands.night.from_script import DraftWishes, _with_score
from agent.commands.night.menu import app
from agent.menu.files import ProxyMenu, load_menu, parse_menu
from agent.menu.scripts.draft import constraints_asserted
from agent.menu.scripts.draft import draft_of as unscored_draft
from agent.menu.scripts.metrics import candidates
from agent.menu.scripts.option import Option
from agent.menu.scripts.reading import script_of
from agent.menu.scripts.reported import Reported
from agent.menu.scripts.sorting import sorted_options
from agent.menu.scripts.update import draft_beside
from agent.menu.trainer_table import TrainerTable
from agent.session.own_trainer import OwnTrainer
from autoresearch.errors import AutoresearchError, MenuError
from trainer.script.editing import edited

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


@pytest.fixture(autouse=True)
def _own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the Python that has the parsers' libraries run the scripts."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)


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
    draft_beside(path).unlink(missing_ok=True)
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
        "data: the script asks for it and has no default; add it to the command"
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
    read = script_of(script, Reported((Option("width", 64, "--width={width}"),)))
    begun = time.process_time()
    assert len(constraints_asserted(read, {"width": 64, "n_head": 4})) == 1
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
        "import os, time\n"
        + _HEAD
        + _LR
        + 'p.add_argument("--train", default=os.environ.get("TRAIN"))\n'
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
    assert menu.constants == {"train": "a", "jobs": 1}
    assert {"--out={out}", "--seed={seed}"} <= set(trainer.command)
    assert {"max_depth": 5, "eta": 0.1}.items() <= menu.defaults.items()


CONFIGURATOR = """
import sys
from ast import literal_eval
for arg in sys.argv[1:]:
    if '=' not in arg:
        exec(open(arg).read())
    else:
        key, val = arg.split('=')
        globals()[key[2:]] = literal_eval(val)
"""


def test_nanogpt_s_way_of_overriding(tmp_path: Path) -> None:
    written(tmp_path, "n_layer = 6\ndataset = 'chars'\nunknown = 1\nseed = 1337\n", "small.py")
    written(tmp_path, CONFIGURATOR, "configurator.py")
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
    assert (str(menu.campaign.budget), menu.campaign.horizon_steps) == ("100 steps", 600000)
    assert trainer.tells_seed
    assert any("warmup_iters is 2000, but a trial has 100 steps" in one for one in report["notes"])
    assert report["length"] == ""  # 100 was given by hand


def test_constants_are_edited(tmp_path: Path) -> None:
    menu, trainer, report = draft_of(tmp_path, CONSTANTS)
    assert report["set_by"] == "edit"
    assert list(menu.knobs) == ["LR", "BETAS_0", "BETAS_1", "PATTERN"]
    assert trainer.set_by == "edit"
    assert trainer.edits == {"SEED": "{seed}", "STEPS": "{steps}"}
    assert (report["length"], str(menu.campaign.budget)) == ("", "500 steps")
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
    menu, trainer, _ = draft_of(
        tmp_path,
        "lr = 1e-3\ndata_seed = 4\nrng.seed(5)\nForest(random_state=7)\nTree(random_state=8)\n"
        "train_test_split(x, random_state=9)\nprint(f'val loss {lr}')\n",
    )
    assert (list(menu.knobs), menu.constants) == (["lr"], {"data_seed": 4})
    seeds = {"rng_seed", "Forest_random_state", "Tree_random_state"}
    assert trainer.edits == dict.fromkeys(seeds, "{seed}")


SEEDS = """keras.utils.set_random_seed(7)|L.seed_everything(7)|pl.seed_everything(7, workers=True)
rng = np.random.default_rng(7)|rng = np.random.RandomState(7)|g = torch.Generator().manual_seed(7)
key = jax.random.key(7)|key = jax.random.PRNGKey(7)|key = random.PRNGKey(7)|set_seed(7)
mx.random.seed(7)|transformers.set_seed(7)|random.seed(7)|np.random.seed(7)|torch.manual_seed(7)|paddle.seed(7)
torch.cuda.manual_seed_all(7)|torch.cuda.manual_seed(7)|tf.random.set_seed(7)|tf.set_random_seed(7)
rng = random.Random(7)|rng = np.random.Generator(np.random.PCG64(7))|ss = np.random.SeedSequence(7)
env.reset(seed=7)|m = Forest(random_state=7)|m = PPO("MlpPolicy", env, seed=7)|setup_seed(7)
fix_seed(7)
seed_torch(7)
pyro.set_rng_seed(7)|accelerate.utils.set_seed(7)|enable_full_determinism(7)|seed = 7
same_seeds(7)|init_seeds(7)|SEED = 7|params = {"seed": 7}|MANUAL_SEED = 7|RANDOM_STATE = 7
rng = np.random.default_rng(seed=7)|torch.random.manual_seed(7)|seed_all(7)|set_global_seeds(7)"""


@pytest.mark.parametrize("form", SEEDS.replace("\n", "|").split("|"))
def test_a_seed_is_found_and_set(tmp_path: Path, form: str) -> None:
    path = written(tmp_path, f"LR = 1e-3\n{form}\n")
    script = script_of(path, Reported(), "edit")
    places = sorted_options(script.options, script.tree)
    (seed,) = (one for one in places if one.template == "{seed}")
    assert edited(script.source, {seed.option.name: 8}) == script.source.replace("7", "8")


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


@pytest.mark.parametrize(("name", "steps"), [("max_iter", 30), ("steps", 20), ("max_steps", 5000)])
def test_the_script_s_own_length_is_the_budget(tmp_path: Path, name: str, steps: int) -> None:
    menu, _, report = draft_of(
        tmp_path, f"{name} = {steps}\nlr = 1e-3\nprint(f'val loss {{lr}}')\n"
    )
    assert (str(menu.campaign.budget), report["length"]) == (f"{steps} steps", "")


def test_the_environment_is_told(tmp_path: Path) -> None:
    _, trainer, _ = draft_of(
        tmp_path,
        "import os\nlr = float(os.environ.get('LR', '0.1'))\nseed = os.environ.get('SEED', 1)\n"
        "tokenizer = os.environ.get('TOKENIZER_PATH', 'bpe.model')\n"
        "print(f'val loss {lr}')\n",
    )
    assert trainer.env == {"LR": "{LR}", "SEED": "{seed}", "TOKENIZER_PATH": "{TOKENIZER_PATH}"}


COUNTS = """
import os
lr = float(os.environ.get("LR", 1e-3))
batch = int(os.environ.get("TRAIN_BATCH_TOKENS", 524288))
keys = int(os.environ.get("N_KEYS", 8))
hub = os.environ.get("HUB_TOKEN", "x")
print(f"val_loss: {lr}")
"""


def test_a_number_is_no_secret(tmp_path: Path) -> None:
    menu, _, report = draft_of(tmp_path, COUNTS)
    assert list(menu.knobs) == ["LR", "TRAIN_BATCH_TOKENS", "N_KEYS"]
    assert "key" in report["left"]["HUB_TOKEN"]
    own = menu.toml.replace('LR = "{LR}"', 'LR = "{LR}", KEY_DIM = "64", MY_KEY = "{N_KEYS}"')
    assert parse_menu(own, "by hand").trainer
    with pytest.raises(MenuError):
        parse_menu(menu.toml.replace('LR = "{LR}"', 'LR = "{LR}", MY_KEY = "abc"'), "by hand")


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
flags.DEFINE_bool("tied", True, "halves")
flags.DEFINE_integer("width", 100, "of the stream")
app.run(lambda _: print(f"val_loss: {flags.FLAGS.lr}"))
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
        (_ABSL, (), ("--lr={lr}", "{tied:--tied|--notied}", "--width={width}")),
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


def test_a_parser_in_a_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    written(tmp_path / "lab", "", "__init__.py")
    written(tmp_path / "lab", f"{_HEAD}{_LR}", "cli.py")
    menu, *_ = draft_of(tmp_path, f"from lab.cli import p\nWIDTH = 64\n{_TAIL}")
    assert list(menu.knobs) == ["lr"]


def test_a_score_that_an_imported_module_prints_is_found(tmp_path: Path) -> None:
    written(tmp_path, 'def test(x): print(f"val_loss: {x}")\n', "engine.py")
    text = f"from engine import test\n{_HEAD}{_LR}test(p.parse_args().lr)\n"
    _, trainer, report = draft_of(tmp_path, text)
    assert (trainer.unit, report["to_do"]) == ("val_loss", [])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("import hydra", ("hydra", "menus.md")),
        ("import yaml\nyaml.safe_load(open('c.yaml'))", ("yaml", "menus.md")),
    ],
)
def test_what_is_not_read_is_named(tmp_path: Path, text: str, named: tuple[str, ...]) -> None:
    written(tmp_path, "a: 1\n", "c.yaml")
    said = refused(MenuError, written(tmp_path, f"{text}\n"))
    _, _, report = draft_of(tmp_path, f"{text}\n{_HEAD}{_LR}{_TAIL}")
    for word in named:
        assert word in said
        assert any(word in note for note in report["notes"])


def test_a_script_that_reads_its_words_itself_is_named_and_its_evaluation_kept(
    tmp_path: Path,
) -> None:
    text = (
        "import sys\nLR = 0.1\nconfig = sys.argv[1:]\n"
        "def eval_split(data):\n    loader = DataLoader(data, batch_size=100)\n"
        "def train_and_evaluate():\n    Net(dropout=0.1)\n"
        "print('loss', 1.0)\n"
    )
    menu, _, report = draft_of(tmp_path, text)
    assert any("sys.argv" in note for note in report["notes"])
    assert list(menu.knobs) == ["LR", "dropout"]
    assert "batch_size" in report["left"]


def tried(folder: Path, line: str, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Draft a menu from a script that ends with a line, with its dry start."""
    path = written(folder, f"{_HEAD}{_LR}a = p.parse_args()\n{line}\n")
    menu = str(path.with_name("menu.toml"))
    words = ["from-script", str(path), "-o", menu, "--json", *arguments]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


@pytest.mark.parametrize(
    ("line", "label", "direction", "last"),
    [
        ('print("val_loss:", a.lr)', "val_loss", "minimise", 1e-3),
        ('print("FID Score: 20.5 (lower is better)")', "FID Score", "minimise", 20.5),
        ('print("test loss, test acc:", [0.5, 0.3])', "test loss, test acc: [{}", "minimise", 0.5),
        ('print("Loss 4.5 (3.5)")', "Loss … ({})", "minimise", 3.5),
        (
            'import json; json.dump({"val": {"acc": 0.5}}, open("metrics.json", "w"))',
            "val.acc",
            "maximise",
            0.5,
        ),
        (
            'open("log.csv", "w").write("epoch,val_loss\\n1,0.75\\n2,0.5\\n")',
            "val_loss",
            "minimise",
            0.5,
        ),
    ],
)
def test_the_score_is_read_from_what_a_run_printed_or_wrote(
    tmp_path: Path, line: str, label: str, direction: str, last: float
) -> None:
    report = tried(tmp_path, line)
    first = report["candidates"][0]
    assert (report["score"], report["direction"], first["last"]) == (label, direction, last)
    menu = load_menu(str(tmp_path / "menu.toml"))
    own = OwnTrainer.of(str(tmp_path / "menu.toml"), menu, tmp_path / "runs")
    assert own is not None
    assert own.command.measure.direction == direction
    assert own.command.score.key == (label if first["file"] else None)


def test_what_a_function_that_evaluates_prints_is_no_training_figure(tmp_path: Path) -> None:
    report = tried(
        tmp_path,
        'def test():\n    print("Avg. PSNR: 20.5 dB")\nprint("Avg. Loss: 0.5")\ntest()',
    )
    assert (report["score"], report["direction"]) == ("Avg. PSNR", "maximise")


def test_a_direction_that_nobody_knows_is_a_question_that_the_loop_asks_too(tmp_path: Path) -> None:
    report = tried(tmp_path, 'print("goodness: 0.3")')
    assert (report["score"], report["direction"]) == ("goodness", None)
    assert len(report["to_do"]) == 1
    path = tmp_path / "menu.toml"
    with pytest.raises(MenuError):
        load_menu(str(path))
    path.write_text(path.read_text().replace('direction = "TO DO"\n', ""))
    with pytest.raises(MenuError, match="goodness"):
        load_menu(str(path))


def test_the_answers_can_be_given_as_options(tmp_path: Path) -> None:
    line = 'print("val loss 0.5 goodness 0.3")'
    report = tried(tmp_path, line, "--score=goodness", "--direction=maximise")
    assert (report["score"], report["direction"], report["to_do"]) == ("goodness", "maximise", [])
    refused(MenuError, tmp_path / "train.py", "--direction=up")


def test_a_failing_script_is_said_to_fail(tmp_path: Path) -> None:
    report = tried(tmp_path, "print('val_loss:', 1 / (a.lr - a.lr))", code=3)
    assert "ZeroDivisionError" in report["dry_start"]
    assert (report["score"], load_menu(str(tmp_path / "menu.toml")).knobs.keys()) == (
        "val_loss",
        {"lr"},
    )


@pytest.mark.parametrize(
    ("typed", "label", "direction"),
    [("\n", "val loss", "minimise"), ("3\n2\ny\n", "goodness", "maximise")],
)
def test_a_terminal_is_asked_with_the_best_candidate_first(
    tmp_path: Path, typed: str, label: str, direction: str
) -> None:
    script = script_of(written(tmp_path, "LR = 1e-3\n"), Reported())
    found = candidates(["goodness 0.3", "val loss 0.5"])
    chosen = []

    def ask() -> None:
        wishes = DraftWishes(None, None, None, ())
        chosen.append(_with_score(unscored_draft(script, None), found, wishes, is_asked=True))

    question = typer.Typer()
    question.command()(ask)
    result = CliRunner().invoke(question, input=typed)
    assert result.exception is None, result.output
    assert "[0.5]" in result.output
    assert (chosen[0].score.label, chosen[0].direction) == (label, direction)


def test_an_option_that_is_set_aside_is_taken_in_by_its_name(tmp_path: Path) -> None:
    text = f"{_HEAD}{_LR}p.add_argument('--log-interval', type=int, default=8)\n{_TAIL}"
    menu, _, report = draft_of(tmp_path, text)
    assert (list(menu.knobs), list(report["left"])) == (["lr"], ["log_interval"])
    menu, _, report = draft_of(tmp_path, text, "--search=log_interval")
    assert (list(menu.knobs), list(report["left"])) == (["lr", "log_interval"], [])


def test_constants_are_drafted_where_the_arguments_say_no_scale(tmp_path: Path) -> None:
    menu, trainer, report = draft_of(
        tmp_path,
        f"{_HEAD}p.add_argument('--cpu', action='store_true')\np.parse_args()\n"
        "config = {'lr': 2e-5, 'seed': 42}\nprint(f'val_loss: {config}')\n",
        "--",
        "--cpu",
    )
    assert (list(menu.knobs), trainer.set_by) == (["lr"], "edit")
    assert (trainer.command[1:], list(report["left"])) == (("train.py", "--cpu"), ["cpu"])


def test_a_second_call_keeps_what_a_person_changed(tmp_path: Path) -> None:
    more = 'p.add_argument("--width", type=int, default=64)\n'
    path, menu = written(tmp_path, f"{_HEAD}{_LR}{more}{_TAIL}"), tmp_path / "menu.toml"
    run(path, "-o", menu)
    text = menu.read_text()
    (line,) = (one for one in text.splitlines() if one.startswith("width"))
    changed = text.replace(f"{line}\n", "").replace("high = 0.01", "high = 0.02")
    menu.write_text(changed.replace('budget = "1 run"', 'budget = "1 run"\nwall_s = 30.0'))
    new = 'p.add_argument("--decay", type=float, default=0.1)\n'
    written(tmp_path, f"{_HEAD}{_LR}{more}{new}{_TAIL}")
    report = json.loads(run(path, "-o", menu, "--json"))
    assert set(report["kept"]) == {"knobs.width", "knobs.lr", "campaign.wall_s"}
    merged = load_menu(str(menu))
    assert list(merged.knobs) == ["lr", "decay"]
    assert merged.knobs["lr"].domain.ends == (1e-4, 0.02)
    assert merged.campaign.wall_s == 30
    again = json.loads(run(path, "-o", menu, "--json"))
    assert (menu.read_text(), set(again["kept"])) == (again["toml"], set(report["kept"]))


def test_a_menu_with_something_to_do_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, f"{_HEAD}{_LR}p.add_argument('--data', required=True)\n{_TAIL}")
    menu, _, report = drafted(path)
    assert report["to_do"]
    with pytest.raises(MenuError):
        OwnTrainer.of(str(tmp_path / "menu.toml"), menu, tmp_path / "runs")


LIKE_JSONARGPARSE = """
import argparse
import typing

class TypeHint(argparse.Action):
    def __init__(self, typehint=None, **more):
        super().__init__(**more)
        self._typehint = typehint

    def __call__(self, parser, namespace, value, option_string=None):
        setattr(namespace, self.dest, float(value) if self._typehint is float else value)

class Commands(argparse._SubParsersAction):
    pass

class Parser(argparse.ArgumentParser):
    def get_default(self, dest):
        if dest == "print_config":
            raise KeyError(dest)
        return super().get_default(dest)

parser = Parser()
commands = parser.add_subparsers(action=Commands, dest="subcommand", required=True)
fit = commands.add_parser("fit")
fit.add_argument("--print_config", action="store_true")
rate = "--model.learning_rate"
fit.add_argument(rate, action=TypeHint, typehint=float, default=0.02)
either = typing.Union[bool, int]
fit.add_argument("--seed_everything", action=TypeHint, typehint=either, default=True)
fit.add_argument("--ckpt_path", action=TypeHint, typehint=typing.Optional[str])
asked = parser.parse_args()
print("val loss", getattr(asked, "model.learning_rate") * 25)
"""


def test_options_with_a_type_hint_and_a_command_of_its_own_kind_are_read(tmp_path: Path) -> None:
    """As jsonargparse has them, on which LightningCLI rests."""
    draft = draft_of(tmp_path, LIKE_JSONARGPARSE, "--", "fit")
    assert draft.menu.knobs["model_learning_rate"].default == 0.02
    assert list(draft.menu.knobs) == ["model_learning_rate"]
    command = draft.trainer.command
    assert not any("ckpt_path" in word for word in command), "a run goes on from it"
