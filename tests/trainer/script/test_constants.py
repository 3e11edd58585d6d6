"""Recognition of constants among a script's assignments, and their values."""

from __future__ import annotations

import ast

import pytest

from trainer.script.constants import assigned_lines, constants
from trainer.script.literals import NotLiteralError, literal


def found(source: str, **how: object) -> dict[str, object]:
    return {name: one.value for name, one in constants(ast.parse(source), **how).items()}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2**19", 524288),
        ("-1e-4", -1e-4),
        ("int(1e6)", 1_000_000),
        ("1 << 10", 1024),
        ("'SSSL'", "SSSL"),
        ("(0.8, 0.95)", (0.8, 0.95)),
        ("['a', 'b']", ("a", "b")),
        ("{'sgd': SGD, 'adam': Adam}.keys()", ("sgd", "adam")),
    ],
)
def test_what_can_be_said_without_running(expression: str, value: object) -> None:
    said = literal(ast.parse(expression, mode="eval").body)
    assert (type(said), said) == (type(value), value)


@pytest.mark.parametrize(
    "expression",
    [
        "os.cpu_count()",
        "9**9**9",
        "1 << 10000",
        "f'{x}'",
        "'a' + 'b'",
        "1j",
        "x",
        "1e999",
        "1 / 0",
        "'bf16' if ok else 'fp16'",
        "True + 1",
    ],
)
def test_what_cannot(expression: str) -> None:
    with pytest.raises(NotLiteralError):
        literal(ast.parse(expression, mode="eval").body)


def test_state_is_no_constant() -> None:
    source = """
LR = 3e-4
step = 0
best = 1e9
DEPTH: int = 8
batch = 4
momentum = 0.9
while step < 10:
    step += 1
if True:
    batch = 8
    inside = 1
def train():
    global best
    best = 2.0
    momentum = 0.5  # a local of that name
for momentum2 in range(3):
    pass
"""
    assert found(source) == {"LR": 3e-4, "DEPTH": 8, "momentum": 0.9}
    assert found(source, state=True) == {
        "LR": 3e-4,
        "step": 0,
        "best": 1e9,
        "DEPTH": 8,
        "batch": 4,
        "momentum": 0.9,
    }
    assert found(source, before_line=4) == {"LR": 3e-4}


@pytest.mark.parametrize(
    "rebinding",
    [
        "for X in range(3): pass",
        "with open('f') as X: pass",
        "import numpy as X",
        "def X(): pass",
        "class X: pass",
        "try: pass\nexcept ValueError as X: pass",
        "del X",
        "print(X := 3)",
        "[X := i for i in range(3)]",
        "match 3:\n    case X: pass",
        "(X, y) = 1, 2",
    ],
)
def test_whatever_binds_the_name_again_makes_it_state(rebinding: str) -> None:
    assert "X" not in found(f"X = 1\n{rebinding}\n")


def test_what_binds_a_name_elsewhere_does_not() -> None:
    source = """
X = 1
Y = [X for X in range(3)]
f = lambda X: X
class A:
    X = 5
    def g(self): X = 2
"""
    assert found(source)["X"] == 1


def test_rows_of_numbers_are_a_constant_each() -> None:
    assert found("ADAM_BETAS = (0.8, 0.95)\nNAMES = ('a', 'b')\nEMPTY = ()\n") == {
        "ADAM_BETAS_0": 0.8,
        "ADAM_BETAS_1": 0.95,
    }


def test_entries_of_a_dictionary_of_settings_that_stays_as_it_is() -> None:
    source = """
eta = 1
params = {"eta": 0.3, "depth": 4, "metric": {"l1"}, "betas": (0.9, 0.99), "seed": eta, 1: 2}
xgb_config = {"depth": 5}
other_args = {"alpha": 0.1}
other_args["alpha"] = 0.2
more_params = {"beta": 0.1}
more_params.update(params)
labels = {"cat": 7}
"""
    found = constants(ast.parse(source))
    assert {name: one.value for name, one in found.items()} == {
        "eta": 1,
        "params_eta": 0.3,
        "params_depth": 4,
        "betas_0": 0.9,
        "betas_1": 0.99,
        "xgb_config_depth": 5,
    }


def test_fields_of_dataclasses_and_of_classes_that_only_list() -> None:
    source = '''
from dataclasses import dataclass, field
import dataclasses

@dataclass
class Args:
    lr: float = 1e-3
    depth: int = field(default=4)
    names: list = field(default_factory=list)
    required: int
    width: int = 8

@dataclasses.dataclass(frozen=True)
class Other:
    lr: float = 2e-3

class Plain:
    """What is set."""
    warmup = 10

class Model(Base):
    hidden = 3

class Busy:
    hidden = 3
    def f(self): ...

model = Args(width=16)
'''
    assert found(source) == {"Args_lr": 1e-3, "depth": 4, "Other_lr": 2e-3, "warmup": 10}


def test_a_name_over_names_is_computed() -> None:
    """A number in its place would separate it from the name that it follows."""
    assert found("lr = 1e-3\nmin_lr = lr / 10\n") == {"lr": 1e-3}


def test_lines_of_assignments() -> None:
    tree = ast.parse("x = 1\nif x:\n    x = 2\n")
    assert assigned_lines(tree, "x") == [1, 3]
