"""Test that a script's constants are read and rewritten, and nothing else changes."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import SpecError
from trainer.script.constants import constants, first_values
from trainer.script.editing import edited
from trainer.script.literals import NotLiteralError, literal


def found(source: str) -> dict[str, object]:
    return {name: one.value for name, one in constants(ast.parse(source)).items()}


LITERALS: dict[str, object] = {
    "2**19": 524288,
    "-1e-4": -1e-4,
    "int(1e6)": 1_000_000,
    "1 << 10": 1024,
    "'SSSL'": "SSSL",
    "(0.8, 0.95)": (0.8, 0.95),
    "['a', 'b']": ("a", "b"),
}
COMPUTED = """os.cpu_count() | 9**9**9 | 1 << 10000 | f'{x}' | 'a' + 'b' | 1j | x | 1e999 | 1 / 0
| 'bf16' if ok else 'fp16' | True + 1 | {'sgd': SGD}.keys() | {'sgd': 1} | tuple([1])"""


def test_a_value_is_known_without_a_run_or_said_to_be_computed() -> None:
    for expression, value in LITERALS.items():
        said = literal(ast.parse(expression, mode="eval").body)
        assert (type(said), said) == (type(value), value)
    for expression in COMPUTED.split("|"):
        with pytest.raises(NotLiteralError):
            literal(ast.parse(expression.strip(), mode="eval").body)


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
    first = first_values(ast.parse(source))
    assert list(first) == ["LR", "step", "best", "DEPTH", "batch", "momentum"]
    assert ast.unparse(first["batch"]) == "4"


REBOUND = """
for X in range(3): pass
with open('f') as X: pass
import numpy as X
def X(): pass
class X: pass
del X
print(X := 3)
[X := i for i in range(3)]
(X, y) = 1, 2"""
REBOUND_IN_BLOCKS = "try: pass\nexcept ValueError as X: pass", "match 3:\n    case X: pass"


@pytest.mark.parametrize("rebinding", [*REBOUND.strip().splitlines(), *REBOUND_IN_BLOCKS])
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
    assert found(source) == {
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


def test_rows_of_numbers_are_a_constant_each_and_names_over_names_are_none() -> None:
    source = "BETAS = (0.8, 0.95)\nNAMES = ('a', 'b')\nEMPTY = ()\nlr = 1e-3\nmin_lr = lr / 10\n"
    assert found(source) == {"BETAS_0": 0.8, "BETAS_1": 0.95, "lr": 1e-3}


SCRIPT = """\
# Ein Übungsskript — with bytes that are no characters
NAME = "ß"; LR = 6e-4  # max learning rate
TOTAL_BATCH_SIZE = 2**19 # ~524K tokens
ADAM_BETAS = (0.8, 0.95)
WIDTH = (
    64  # of the stream
)
ON: bool = True
step = 0
step += 1
print(f"{LR} {WIDTH}")
"""


def test_only_the_value_changes() -> None:
    values = {
        "LR": 1e-05,
        "TOTAL_BATCH_SIZE": 1024,
        "ADAM_BETAS_1": 0.99,
        "WIDTH": 96,
        "ON": False,
        "NAME": "a'\"\n",
    }
    assert edited(SCRIPT, values) == (
        SCRIPT.replace("6e-4", "1e-05")
        .replace("2**19", "1024")
        .replace("0.95", "0.99")
        .replace("64  #", "96  #")
        .replace("ON: bool = True", "ON: bool = False")
        .replace('"ß"', repr("a'\"\n"))
    )
    assert edited(SCRIPT, {}) == SCRIPT


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "LR": st.floats(allow_nan=False, allow_infinity=False, min_value=-1e30, max_value=1e30),
            "NAME": st.text(max_size=20),
            "TOTAL_BATCH_SIZE": st.integers(-(10**18), 10**18),
            "ADAM_BETAS_0": st.floats(0, 1),
            "ON": st.booleans(),
        },
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_the_copy_runs_to_the_values(values: dict[str, float | str | bool], newline: str) -> None:
    source = SCRIPT.replace("\n", newline)
    copy = edited(source, values)
    assert found(copy) == found(source) | values
    space: dict[str, object] = {}
    plain = copy if "NAME" in values else copy.replace("\r\n", "\n").replace("\r", "\n")
    exec(compile(plain, "copy", "exec"), space)
    for name, value in values.items():
        assert (space["ADAM_BETAS"][0] if name == "ADAM_BETAS_0" else space[name]) == value  # type: ignore[index]


def test_lines_are_counted_as_python_counts_them() -> None:
    """A form feed or a line separator in a string ends a line for str.splitlines, but not in
    Python."""
    source = 'A = "x\x0cy\x0b\u2028z"\nLR = 1\n'
    assert edited(source, {"LR": 2}) == 'A = "x\x0cy\x0b\u2028z"\nLR = 2\n'


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        ({"step": 3}, "9, 10"),
        ({"LRR": 3}, "LR"),
        ({"LR": float("nan")}, "nan"),
        ({"ADAM_BETAS": 1.0}, "4"),
    ],
)
def test_what_is_not_sure_is_refused(values: dict[str, float], seen: str) -> None:
    with pytest.raises(SpecError, match=seen):
        edited(SCRIPT, values)


@pytest.mark.parametrize("source", ["def (:\n", "x = 1\0\n", "(" * 5000])
def test_what_is_no_python_is_refused(source: str) -> None:
    with pytest.raises(SpecError):
        edited(source, {})


def test_code_and_constants_are_set_together() -> None:
    source = "LR = 1\n# autoresearch: slot act\nx = LR\n# autoresearch: end\n"
    copy = edited(source, {"code.act": "x = 2\ny = x", "LR": 3})
    assert copy == "LR = 3\n# autoresearch: slot act\nx = 2\ny = x\n# autoresearch: end\n"
    with pytest.raises(SpecError):
        edited(source, {"code.other": "x = 2"})
    with pytest.raises(SpecError):  # which of the two assignments is meant?
        edited(source, {"code.act": "LR = 2", "LR": 3})
