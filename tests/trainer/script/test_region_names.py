"""Check that code for a region reaches nothing but its own names and those that it is given."""

from __future__ import annotations

import ast

import pytest

from autoresearch.errors import SpecError
from trainer.script.regions import check_names

KNOWN = {"x", "torch", "relu", "range", "step", "lr"}


@pytest.mark.parametrize(
    ("code", "bound"),
    [
        ("x = torch.relu(x)", {"x"}),
        ("def rate(n, low=lr):\n    return min_of(n)\n    min_of = 1", None),
        ("def rate(n, low=lr):\n    top = n * low\n    return top", {"rate"}),
        ("for i in range(3):\n    x = x * i\ny = x", {"y"}),
        ("if step:\n    y = 1\nelse:\n    y = 2\nz = y", {"y", "z"}),
        ("y = [a * lr for a in x]\nz = lambda q: q + lr", {"y", "z"}),
        ("lr += 1", {"lr"}),
        ("a, (b, *c) = x, (step, lr)", None),
    ],
)
def test_the_names_bound_on_every_way_are_returned(code: str, bound: set[str] | None) -> None:
    if bound is None:
        with pytest.raises(SpecError):
            check_names(ast.parse(code), KNOWN)
    else:
        assert check_names(ast.parse(code), KNOWN) == bound


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "from os import path",
        "open('f')",
        "eval('1')",
        "x.__class__",
        "x = torch.load('f')",
        "global evaluate",
        "evaluate()",
        "evaluate = evaluate",
        "if step:\n    evaluate = 1\nevaluate()",
        "for evaluate in []:\n    pass\nevaluate()",
        "while step:\n    evaluate = 1\nevaluate()",
        "(evaluate := 1)",
        "evaluate += 1",
        "y = [evaluate for a in x]",
        "y = lambda a=evaluate: a",
        "f'{x.__class__}'",
        "_private = 1",
        "class A:\n    pass",
        "try:\n    x\nexcept Exception:\n    pass",
        "with x:\n    pass",
        "del x",
        "@x\ndef f():\n    pass",
        "def f():\n    yield x",
        "x.save = 1",
        "evaluate.relu = 1",
        "print(x)",
    ],
)
def test_what_reaches_further_is_refused(code: str) -> None:
    with pytest.raises(SpecError):
        check_names(ast.parse(code), KNOWN)
