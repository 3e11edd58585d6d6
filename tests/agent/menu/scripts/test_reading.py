import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.menu.scripts.draft import draft_of
from agent.menu.scripts.option import Option
from agent.menu.scripts.reading import Script, script_of
from agent.menu.scripts.reported import Reported, reported
from autoresearch.errors import MenuError
from trainer.command import observing


def report(tmp_path: Path, source: str, *words: str) -> Reported:
    """Return what a script's own parser reports, in a Python of its own."""
    path = tmp_path / "train.py"
    path.write_text(source, encoding="utf-8")
    hook = str(Path(observing.__file__).parent)
    env = {**os.environ, "PYTHONPATH": hook}
    words_of_it = [sys.executable, "train.py", *words]
    done = subprocess.run(
        words_of_it, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    return reported(done.stdout.split("\n"), words, source)


def read(tmp_path: Path, source: str, means: str | None = None) -> Script:
    found = report(tmp_path, source) if means in {None, "args"} else Reported()
    return script_of(tmp_path / "train.py", found, means)


def options(tmp_path: Path, source: str, means: str | None = None) -> dict[str, Option]:
    path = tmp_path / "train.py"
    path.write_text(source, encoding="utf-8")
    return {option.name: option for option in read(tmp_path, source, means).options}


ARGPARSE = """
import argparse, os
WIDTHS = [64, 128]
parser = argparse.ArgumentParser()
parser.add_argument("data", help="where the text is")
parser.add_argument("-b", "--batch-size", type=int, default=2**6, help="sequences a step")
parser.add_argument("--lr", dest="learning_rate", type=float, default=1)
parser.add_argument("--width", type=int, choices=WIDTHS, default=64)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--no-bias", action="store_false", dest="bias")
parser.add_argument("--fused", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--shuffle", type=bool, default=True)
parser.add_argument("--betas", type=float, nargs=2, default=(0.9, 0.95))
parser.add_argument("--workers", type=int, default=os.cpu_count())
parser.add_argument("--name", required=True)
parser.add_argument("-w", type=float, default=0.5)
parser.add_argument("--steps", type=int, default=10)
add = parser.add_argument
add("--depth", type=int, default=4)
parser.set_defaults(depth=6)
sub = parser.add_subparsers().add_parser("sample")
sub.add_argument("--top-k", type=int, default=5)
args = parser.parse_args()
args.steps = 5
args.lr = args.lr * 2
"""


def shown(found: dict[str, Option]) -> dict[str, tuple[Any, ...]]:
    """Return the default, the argument and what else is known of each option that can be set."""
    can_be_set = (one for one in found.values() if not one.left)
    return {
        one.name: (
            one.default,
            one.argument,
            *(known for known in (one.choices, one.low, one.high, one.doc) if known),
        )
        for one in can_be_set
    }


def test_argparse(tmp_path: Path) -> None:
    found = options(tmp_path, ARGPARSE)
    assert shown(found) == {
        "batch_size": (64, "--batch-size={batch_size}", "sequences a step"),
        "learning_rate": (1.0, "--lr={learning_rate}"),
        "width": (64, "--width={width}", (64, 128)),
        "amp": (False, "{amp:--amp}"),
        "bias": (True, "{bias:|--no-bias}"),
        "fused": (True, "{fused:--fused|--no-fused}"),
        "name": (None, "--name={name}"),
        "w": (0.5, "-w{w}"),
        "depth": (6, "--depth={depth}"),
        "workers": (os.cpu_count(), "--workers={workers}"),
    }
    assert type(found["learning_rate"].default) is float
    left = {name: option.left for name, option in found.items() if option.left}
    assert left.keys() == {"data", "shuffle", "betas", "steps", "top_k"}
    assert "line 24" in left["steps"]
    assert {name for name, option in found.items() if option.required} == {"data", "name"}


CLICK = """
import click

@click.command()
@click.option("--lr", type=float, default=1e-3, show_default=True, help="rate")
@click.option("-d", "--depth", "n_layer", default=4, type=click.IntRange(min=1, max=12))
@click.option("--opt", type=click.Choice(["adam", "sgd"]), default="adam")
@click.option("--bias/--no-bias", default=True)
@click.option("--amp", is_flag=True)
@click.option("--tag", multiple=True)
@click.argument("data")
def main(**kwargs): ...
main()
"""


def test_click(tmp_path: Path) -> None:
    found = options(tmp_path, CLICK)
    assert shown(found) == {
        "lr": (1e-3, "--lr={lr}", "rate"),
        "n_layer": (4, "--depth={n_layer}", 1, 12),
        "opt": ("adam", "--opt={opt}", ("adam", "sgd")),
        "bias": (True, "{bias:--bias|--no-bias}"),
        "amp": (False, "{amp:--amp}"),
    }
    assert found.keys() - shown(found) == {"tag", "data"}


TYPER = """
from enum import Enum
from typing import Annotated, Literal, Optional
import typer

app = typer.Typer()

class Opt(str, Enum):
    adam = "adam"
    sgd = "SGD"

@app.command()
def main(
    data: str,
    learning_rate: float = 1e-3,
    depth: Annotated[int, typer.Option("--n-layer", min=1, max=9, help="blocks")] = 4,
    width: int = typer.Option(64, help="of the stream"),
    bias: bool = True,
    norm: Literal["rms", "layer"] = "rms",
    opt: Opt = Opt.sgd,
    clip: Optional[float] = None,
    *,
    tags: list[str] = ["a"],
): ...
app()
"""


def test_typer(tmp_path: Path) -> None:
    found = options(tmp_path, TYPER)
    assert shown(found) == {
        "learning_rate": (1e-3, "--learning-rate={learning_rate}"),
        "depth": (4, "--n-layer={depth}", 1, 9, "blocks"),
        "width": (64, "--width={width}", "of the stream"),
        "bias": (True, "{bias:--bias|--no-bias}"),
        "norm": ("rms", "--norm={norm}", ("rms", "layer")),
        "opt": ("SGD", "--opt={opt}", ("adam", "SGD")),
        "clip": (None, "--clip={clip}"),
    }
    assert found["data"].required
    assert found.keys() - shown(found) == {"data", "tags"}  # and typer's own


DATACLASS = """
from dataclasses import dataclass, field
@dataclass
class Args:
    learning_rate: float = 1
    norm: bool = True
    depth: int = field(default=4, metadata={"help": "blocks"})
    entity: str = None
"""


@pytest.mark.parametrize(
    ("call", "argument", "truth"),
    [
        (
            "import tyro\ntyro.cli(Args)",
            "--learning-rate={learning_rate}",
            "{norm:--norm|--no-norm}",
        ),
        (
            "from transformers import HfArgumentParser\nHfArgumentParser((Args,))",
            "--learning_rate={learning_rate}",
            "--norm={norm}",
        ),
    ],
)
def test_dataclasses_of_libraries_that_are_not_installed(
    tmp_path: Path, call: str, argument: str, truth: str
) -> None:
    assert shown(options(tmp_path, f"{DATACLASS}{call}\n")) == {
        "learning_rate": (1.0, argument),
        "norm": (True, truth),
        "depth": (4, "--depth={depth}", "blocks"),
        "entity": (None, "--entity={entity}"),
    }


CONFIGURATOR = """
import os
batch_size = 12 # sequences
device = 'cuda' # examples: 'cpu', 'cuda'
bias = False
_hidden = 1
lr, wd = 6e-4, 0.1
dtype = 'bf16' if os.cpu_count() else 'fp16'
exec(open('configurator.py').read())
if bias:
    device = 'cpu'
iter_num = 0
"""


def test_globals_that_a_configurator_overwrites(tmp_path: Path) -> None:
    """The file sets what is new, and a value given by hand reaches the draft."""
    (tmp_path / "configurator.py").write_text(
        "import sys\nlr = float(sys.argv[1].split('=')[1])\nseed = 7\n"
    )
    found = report(tmp_path, CONFIGURATOR, "--lr=0.5", "small.py")
    named = {one.name: one for one in found.options}
    assert {name: (one.default, one.argument) for name, one in named.items()} == {
        "batch_size": (12, "--batch_size={batch_size}"),
        "device": ("cuda", "--device={device}"),
        "bias": (False, "--bias={bias}"),
        "lr": (0.5, "--lr={lr}"),
        "wd": (0.1, "--wd={wd}"),
        "dtype": ("bf16", "--dtype={dtype}"),
        "seed": (7, "--seed={seed}"),
    }
    assert found.words == ("small.py",)
    assert [one.name for one in found.options if one.by_hand] == ["lr"]
    script = script_of(tmp_path / "train.py", found)
    known = {one.name: one.choices for one in script.options}
    assert known["device"] == ("cuda", "cpu")


def test_editing_knows_which_of_them_are_state(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CONFIGURATOR)
    script = read(tmp_path, CONFIGURATOR, "edit")
    names = [one.name for one in script.options if not one.left]
    assert names == ["batch_size", "bias", "lr", "wd", "iter_num"]
    assert all(not option.argument for option in script.options)


FUNCTIONS = """
import argparse
def truth(text): return text.lower() in ("yes", "true", "1")
p = argparse.ArgumentParser(conflict_handler="resolve")
p.add_argument("--lr", type=float, default=5.0)
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--aug", default=False, type=lambda s: s == "true")
p.add_argument("--ema", default=True, type=truth)
p.add_argument("--width", default=64, type=lambda s: int(s))
p.add_argument("--decay", default=0.1)
g = p.add_mutually_exclusive_group()
g.add_argument("--adam", action="store_true")
g.add_argument("--sgd", action="store_true")
a = p.parse_args()
decay = float(a.decay)
"""


def test_functions_as_types_and_switches_that_exclude_each_other(tmp_path: Path) -> None:
    found = shown(options(tmp_path, FUNCTIONS))
    assert found == {
        "lr": (1e-3, "--lr={lr}"),
        "aug": (False, "{aug:--aug=true|--aug=false}"),
        "ema": (True, "--ema={ema}"),
        "width": (64, "--width={width}"),
        "decay": (0.1, "--decay={decay}"),
        "adam_or_sgd": ("", "{adam_or_sgd}", ("", "--adam", "--sgd")),
    }
    given = report(tmp_path, FUNCTIONS, "--sgd", "--width", "8")
    assert {one.name: one.default for one in given.options if one.by_hand} == {
        "width": 8,
        "adam_or_sgd": "--sgd",
    }
    assert given.words == ()


def test_a_parser_in_another_module_and_one_that_parses_twice(tmp_path: Path) -> None:
    (tmp_path / "cli.py").write_text(
        "import argparse\ndef parser():\n    p = argparse.ArgumentParser()\n"
        "    for name in ('lr', 'decay'):\n"
        "        p.add_argument(f'--{name}', type=float, default=0.1)\n    return p\n"
    )
    source = (
        "import argparse\nfrom cli import parser\nfirst = argparse.ArgumentParser(add_help=False)\n"
        "first.add_argument('--width', type=int, default=8)\n"
        "_, rest = first.parse_known_args()\nparser().parse_args(rest)\nraise SystemExit(5)\n"
    )
    assert options(tmp_path, source).keys() == {"width", "lr", "decay"}


def test_the_environment(tmp_path: Path) -> None:
    found = options(
        tmp_path,
        """
import os
class Hyperparameters:
    path = os.environ.get("DATA_PATH", "./data")
    iterations = int(os.environ.get("ITERATIONS", 20000))
    lr = float(os.getenv("LR", "0.04"))
    on = bool(int(os.environ.get("ON", "1")))
    rank = int(os.environ["RANK"])
    run = os.environ.get("RUN_ID", str(uuid.uuid4()))
""",
    )
    assert {name: option.default for name, option in found.items()} == {
        "DATA_PATH": "./data",
        "ITERATIONS": 20000,
        "LR": 0.04,
        "ON": 1,
        "RUN_ID": None,
    }
    assert found["LR"].variable == "LR"
    assert found["RUN_ID"].left


def test_texts_that_the_script_compares_or_lists(tmp_path: Path) -> None:
    found = options(
        tmp_path,
        """
optimizer = "adam"
net = "LSTM"  # type of network (RNN, LSTM, GRU)
dtype = "float32"
other = "left alone (as it is)"
if optimizer == "sgd": ...
elif optimizer in ("lion", "adam"): ...
kind = {"float32": 1, "bfloat16": 2}[dtype]
""",
    )
    assert found["optimizer"].choices == ("adam", "lion", "sgd")
    assert found["net"].choices == ("LSTM", "GRU", "RNN")
    assert found["dtype"].choices == ("float32", "bfloat16")
    assert found["other"].choices == ()


def test_a_missing_module_has_a_version_that_its_importer_compares(tmp_path: Path) -> None:
    source = (
        "import argparse\nimport visionlib\nNEW = visionlib.__version__.split('+')[0] > '0.6'\n"
        "p = argparse.ArgumentParser()\np.add_argument('--lr', type=float, default=0.1)\n"
        "p.parse_args()\n"
    )
    found = report(tmp_path, source)
    assert [one.name for one in found.options] == ["lr"]
    assert found.missing == ("visionlib",)


def test_why_a_parser_was_not_reached_is_told(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import argparse\nLR = 0.1\n")
    found = reported(["loss 3", f"{observing.FAILED}no cv2"], (), "")
    assert any("no cv2" in note for note in draft_of(script_of(path, found), None).notes)


def test_nothing_runs_behind_the_parser(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    source = (
        f"import argparse\np = argparse.ArgumentParser()\np.parse_args()\nopen({str(mark)!r}, 'w')"
    )
    report(tmp_path, source)
    assert not mark.exists()


SETTINGS = """
import random
from dataclasses import dataclass, field
LR = 1e-2
LR = LR * 0.5
if LR:
    DROPOUT = 0.2
else:
    DROPOUT = 0.1
@dataclass
class C:
    depth: int = 4
    widths: list = field(default_factory=lambda: [64, 64])
param_grid = {"learning_rate": [0.01, 0.1, 1]}
one = Booster(num_leaves=31, gae_lambda=0.95, n_steps=128)
two = Booster(num_leaves=31)
"""


def test_each_setting_can_be_set_or_has_a_reason(tmp_path: Path) -> None:
    found = options(tmp_path, SETTINGS, "edit")
    assert {name for name, one in found.items() if not one.left} == {
        "depth",
        "gae_lambda",
        "n_steps",
    }
    left = {name for name, one in found.items() if one.left}
    grid = {f"learning_rate_{place}" for place in range(3)}
    assert left == {"LR", "DROPOUT", "widths", "num_leaves", *grid}


@pytest.mark.parametrize(
    ("content", "clause"),
    [
        (b"def (:\n", "not valid Python"),
        (b"\xff\xfe", "not UTF-8"),
        (b"print('hello')\n", "no options to set"),
        (b"x = " + b"-" * 200_000 + b"1\n", "read"),
        (None, "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    tmp_path: Path, content: bytes | None, clause: str
) -> None:
    path = tmp_path / "train.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MenuError, match=clause) as caught:
        script_of(path, Reported())
    assert "\n" not in str(caught.value)


def test_a_notebook_and_a_byte_order_mark(tmp_path: Path) -> None:
    notebook = tmp_path / "train.ipynb"
    notebook.write_text("{}")
    with pytest.raises(MenuError, match="nbconvert"):
        script_of(notebook, Reported())
    assert options(tmp_path, "\ufeffLR = 0.5\n").keys() == {"LR"}


def test_means_that_there_are_not(tmp_path: Path) -> None:
    for means in ("edits", "args"):
        with pytest.raises(MenuError):
            read(tmp_path, "LR = 1.0\n", means)
