"""Check that every kind of option of a script is found without running it."""

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


def test_argparse(tmp_path: Path) -> None:
    found = options(tmp_path, ARGPARSE)

    def of(name: str) -> tuple[Any, str]:
        return found[name].default, found[name].argument

    assert of("batch_size") == (64, "--batch-size={batch_size}")
    assert found["batch_size"].doc == "sequences a step"
    assert found["batch_size"].line == 6
    assert of("learning_rate") == (1.0, "--lr={learning_rate}")
    assert type(found["learning_rate"].default) is float
    assert found["width"].choices == (64, 128)
    assert of("amp") == (False, "{amp:--amp}")
    assert of("bias") == (True, "{bias:|--no-bias}")
    assert of("fused") == (True, "{fused:--fused|--no-fused}")
    assert of("w") == (0.5, "-w{w}")
    assert of("depth") == (6, "--depth={depth}")
    left = {name: option.left for name, option in found.items() if option.left}
    assert left.keys() == {"data", "shuffle", "betas", "workers", "steps", "top_k"}
    assert "True" not in left["workers"]
    assert "computed" in left["workers"]
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
    assert (found["lr"].default, found["lr"].argument, found["lr"].doc) == (
        1e-3,
        "--lr={lr}",
        "rate",
    )
    depth = found["n_layer"]
    assert (depth.default, depth.low, depth.high, depth.argument) == (4, 1, 12, "--depth={n_layer}")
    assert found["opt"].choices == ("adam", "sgd")
    assert found["bias"].argument == "{bias:--bias|--no-bias}"
    assert found["amp"].argument == "{amp:--amp}"
    assert {name for name, option in found.items() if option.left} == {"tag", "data"}


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
    assert found["learning_rate"].argument == "--learning-rate={learning_rate}"
    depth = found["depth"]
    assert (depth.argument, depth.low, depth.high, depth.doc) == (
        "--n-layer={depth}",
        1,
        9,
        "blocks",
    )
    assert (found["width"].default, found["width"].doc) == (64, "of the stream")
    assert found["bias"].argument == "{bias:--bias|--no-bias}"
    assert found["norm"].choices == ("rms", "layer")
    assert (found["opt"].default, found["opt"].choices) == ("SGD", ("adam", "SGD"))
    assert found["clip"].default is None
    assert found["data"].required
    assert {name for name, option in found.items() if option.left} == {"data", "tags"}


@pytest.mark.parametrize(
    ("call", "argument", "truth"),
    [
        ("tyro.cli(Args)", "--learning-rate={learning_rate}", "{norm:--norm|--no-norm}"),
        (
            "HfArgumentParser(Args).parse_args_into_dataclasses()",
            "--learning_rate={learning_rate}",
            "--norm={norm}",
        ),
        ("HfArgumentParser((Args,))", "--learning_rate={learning_rate}", "--norm={norm}"),
        ("pyrallis.parse(config_class=Args)", "--learning_rate={learning_rate}", "--norm={norm}"),
    ],
)
def test_a_dataclass_on_the_command_line(
    tmp_path: Path, call: str, argument: str, truth: str
) -> None:
    found = options(
        tmp_path,
        f'''
from dataclasses import dataclass, field
@dataclass
class Args:
    learning_rate: float = 1
    """the learning rate"""
    norm: bool = True
    depth: int = field(default=4, metadata={{"help": "blocks"}})
    entity: str = None
args = {call}
''',
    )
    assert found["learning_rate"].argument == argument
    assert found["learning_rate"].doc == "the learning rate"
    assert found["norm"].argument == truth
    assert (found["depth"].default, found["depth"].doc) == (4, "blocks")


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
    assert found.pop("dtype").left == "its default is computed"
    assert {name: option.argument for name, option in found.items()} == {
        name: f"--{name}={{{name}}}" for name in ("batch_size", "device", "bias", "lr", "wd")
    }
    assert found["batch_size"].doc == "sequences"


def test_editing_knows_which_of_them_are_state(tmp_path: Path) -> None:
    script = read(tmp_path, CONFIGURATOR, "edit")
    assert [option.name for option in script.options] == [
        "batch_size",
        "bias",
        "lr",
        "wd",
        "iter_num",
    ]
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
    source = f"LR = 1.0\nopen({str(mark)!r}, 'w')\nX = [open({str(mark)!r}, 'w')]\n"
    options(tmp_path, source)
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
    with pytest.raises(MenuError):
        read(tmp_path, "LR = 1.0\n", "edits")
    with pytest.raises(MenuError):
        read(tmp_path, "LR = 1.0\n", "args")
