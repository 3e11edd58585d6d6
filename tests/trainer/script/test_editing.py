"""Editing rewrites a script's constants and changes no other character."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import SpecError
from trainer.script.constants import constants
from trainer.script.editing import edited

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
    assert {n: c.value for n, c in constants(ast.parse(copy)).items()} == {
        **{n: c.value for n, c in constants(ast.parse(source)).items()},
        **values,
    }
    space: dict[str, object] = {}
    exec(
        compile(
            copy.replace("\r\n", "\n").replace("\r", "\n") if "NAME" not in values else copy,
            "copy",
            "exec",
        ),
        space,
    )
    for name, value in values.items():
        assert (space["ADAM_BETAS"][0] if name == "ADAM_BETAS_0" else space[name]) == value  # type: ignore[index]


def test_lines_are_counted_as_python_counts_them() -> None:
    """A form feed or a line separator in a string ends a line for str.splitlines, but not in
    Python."""
    source = 'A = "x\x0cy\x0b\u2028z"\nLR = 1\n'
    assert edited(source, {"LR": 2}) == 'A = "x\x0cy\x0b\u2028z"\nLR = 2\n'


@pytest.mark.parametrize(
    ("values", "clause"),
    [
        ({"step": 3}, "assigns it on lines 9, 10"),
        ({"LRR": 3}, "did you mean LR?"),
        ({"LR": float("nan")}, "finite"),
        ({"ADAM_BETAS": 1.0}, "computes it"),
    ],
)
def test_what_is_not_sure_is_refused(values: dict[str, float], clause: str) -> None:
    with pytest.raises(SpecError, match=clause.replace("?", r"\?")):
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


def test_an_entry_of_a_dictionary_is_set_in_its_place() -> None:
    source = 'params = {"eta": 0.3, "depth": 4}\nother_params = dict(params, depth=5)\n'
    text = edited(source, {"depth": 8, "eta": 0.1})
    assert text == source.replace("0.3", "0.1").replace('"depth": 4', '"depth": 8')
