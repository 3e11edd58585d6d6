"""Marked regions are found and replaced, nothing else changes, and no code reaches further."""

import ast

import pytest

from autoresearch.errors import SpecError
from trainer.script.regions import check_names, normalized, regions, replaced

SCRIPT = '''\
import torch
"""
# autoresearch: slot not_a_comment
"""
class Block:
    def forward(self, x):
        # autoresearch: slot act
        y = torch.relu(x)   # the usual
        x = y
        # autoresearch: end
        return x  # autoresearch: end

# autoresearch: slot lr_at
def lr_at(step):
    return 1e-3
# autoresearch: end
'''


def test_the_regions_are_found_with_their_code_and_place() -> None:
    found = regions(SCRIPT)
    assert list(found) == ["act", "lr_at"]
    assert found["act"].code == "y = torch.relu(x)\nx = y"
    assert (found["act"].begin, found["act"].end, found["act"].indent) == (7, 10, " " * 8)
    assert found["lr_at"].code == "def lr_at(step):\n    return 0.001"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_region_is_replaced_and_every_other_line_stays(end: str) -> None:
    source = SCRIPT.replace("\n", end)
    code = "for i in range(2):\n  x = torch.tanh(x)  # twice"
    text = replaced(source, {"act": code})
    assert regions(text)["act"].code == normalized(code)
    ast.parse(text)
    before, after = source.split(end), text.split(end)
    assert [line for line in before if line in after] == before[:7] + before[9:]
    assert replaced(source, {}) == source


def test_replacing_by_the_own_code_changes_only_its_spelling() -> None:
    own = {name: region.code for name, region in regions(SCRIPT).items()}
    assert ast.dump(ast.parse(replaced(SCRIPT, own))) == ast.dump(ast.parse(SCRIPT))


@pytest.mark.parametrize(
    "code", ["", "# only a comment", "x = (", "else:\n    pass", "  x = 1\n y = 2", "x = '''"]
)
def test_code_that_is_not_whole_statements_is_refused(code: str) -> None:
    for name, written in (("act", code), ("acts", "x = 1")):
        with pytest.raises(SpecError):
            replaced(SCRIPT, {name: written})


@pytest.mark.parametrize(
    "source",
    [
        "# autoresearch: slot a\nx = 1\n",
        "x = 1\n# autoresearch: end\n",
        "# autoresearch: slot a\nx = 1\n# autoresearch: slot b\n# autoresearch: end\n",
        "# autoresearch: slot a\nx = 1\n# autoresearch: end\n" * 2,
        "# autoresearch: slot a\n# autoresearch: end\n",
        "if y:\n    # autoresearch: slot a\n    x = 1\nelse:\n    # autoresearch: end\n    x = 2\n",
        "x = '''",
    ],
)
def test_marks_that_do_not_enclose_statements_are_refused(source: str) -> None:
    with pytest.raises(SpecError):
        regions(source)


KNOWN = {"x", "torch", "relu", "range", "step", "lr"}


@pytest.mark.parametrize(
    ("code", "bound"),
    [
        ("x = torch.relu(x)", {"x"}),
        ("def rate(n, low=lr):\n    top = n * low\n    return top", {"rate"}),
        ("for i in range(3):\n    x = x * i\ny = x", {"y"}),
        ("if step:\n    y = 1\nelse:\n    y = 2\nz = y", {"y", "z"}),
        ("y = [a * lr for a in x]\nz = lambda q: q + lr", {"y", "z"}),
        ("lr += 1", {"lr"}),
    ],
)
def test_the_names_bound_on_every_way_are_returned(code: str, bound: set[str]) -> None:
    assert check_names(ast.parse(code), KNOWN) == bound


REFUSED = r"""
import os
open('f')
x.__class__
x = torch.load('f')
global evaluate
evaluate = evaluate
if step:\n    evaluate = 1\nevaluate()
for evaluate in []:\n    pass\nevaluate()
while step:\n    evaluate = 1\nevaluate()
(evaluate := 1)
evaluate += 1
y = [evaluate for a in x]
y = lambda a=evaluate: a
f'{x.__class__}'
_private = 1
class A:\n    pass
try:\n    x\nexcept Exception:\n    pass
with x:\n    pass
del x
@x\ndef f():\n    pass
def f():\n    yield x
x.save = 1
evaluate.relu = 1
def rate(n, low=lr):\n    return min_of(n)\n    min_of = 1
a, (b, *c) = x, (step, lr)
"""


@pytest.mark.parametrize("code", REFUSED.strip().splitlines())
def test_what_reaches_further_is_refused(code: str) -> None:
    with pytest.raises(SpecError):
        check_names(ast.parse(code.replace("\\n", "\n")), KNOWN)
