from pathlib import Path
from typing import Any

import pytest

from agent.menu.scripts.option import Option
from agent.menu.scripts.reading import Script, read_script
from autoresearch.errors import MenuError


def read(tmp_path: Path, source: str, means: str | None = None) -> Script:
    path = tmp_path / "train.py"
    path.write_text(source, encoding="utf-8")
    return read_script(path, means)


def options(tmp_path: Path, source: str, means: str | None = None) -> dict[str, Option]:
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
    }
    assert found["batch_size"].line == 6
    assert type(found["learning_rate"].default) is float
    left = {name: option.left for name, option in found.items() if option.left}
    assert left.keys() == {"data", "shuffle", "betas", "workers", "steps", "top_k"}
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
    assert found.keys() - shown(found) == {"data", "tags"}


DATACLASS = '''
from dataclasses import dataclass, field
@dataclass
class Args:
    learning_rate: float = 1
    """the learning rate"""
    norm: bool = True
    depth: int = field(default=4, metadata={"help": "blocks"})
    entity: str = None
'''


@pytest.mark.parametrize(
    ("call", "argument", "truth"),
    [
        ("tyro.cli(Args)", "--learning-rate={learning_rate}", "{norm:--norm|--no-norm}"),
        ("HfArgumentParser(Args).parse()", "--learning_rate={learning_rate}", "--norm={norm}"),
        ("HfArgumentParser((Args,))", "--learning_rate={learning_rate}", "--norm={norm}"),
        ("pyrallis.parse(config_class=Args)", "--learning_rate={learning_rate}", "--norm={norm}"),
    ],
)
def test_dataclasses_as_options(tmp_path: Path, call: str, argument: str, truth: str) -> None:
    assert shown(options(tmp_path, f"{DATACLASS}args = {call}\n")) == {
        "learning_rate": (1.0, argument, "the learning rate"),
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
    found = options(tmp_path, CONFIGURATOR)
    assert found["dtype"].left == "its default is computed"
    assert shown(found) == {
        "batch_size": (12, "--batch_size={batch_size}", "sequences"),
        "device": ("cuda", "--device={device}", ("cuda", "cpu"), "examples: 'cpu', 'cuda'"),
        "bias": (False, "--bias={bias}"),
        "lr": (6e-4, "--lr={lr}"),
        "wd": (0.1, "--wd={wd}"),
    }


def test_editing_knows_which_of_them_are_state(tmp_path: Path) -> None:
    script = read(tmp_path, CONFIGURATOR, "edit")
    assert [one.name for one in script.options] == ["batch_size", "bias", "lr", "wd", "iter_num"]
    assert all(not option.argument for option in script.options)


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


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    options(tmp_path, f"LR = 1.0\nopen({str(mark)!r}, 'w')\nX = [open({str(mark)!r}, 'w')]\n")
    assert not mark.exists()


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
        read_script(path)
    assert "\n" not in str(caught.value)


def test_means_that_there_are_not(tmp_path: Path) -> None:
    for means in ("edits", "args"):
        with pytest.raises(MenuError):
            read(tmp_path, "LR = 1.0\n", means)
