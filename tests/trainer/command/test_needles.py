"""A line that a pattern matches holds one of the texts that the pattern needs."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.command.needles import ESCAPE, needles, union
from trainer.command.number import Number


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"abcd (\d+)", {"abcd "}),
        (r"\bloss\s*[:=] *([0-9.]+)", {"loss"}),
        (r"(?:out|ast)+(\d+)", {"out", "ast"}),
        (r"(?:loss)? acc(\d+)", {" acc"}),
        (r"(?:loss|)(\d+)", None),
        (r"(\d+\.\d+)", None),
        (r"(?i)loss (\d+)", None),
        (r"(?i:loss) (\d+)", {" "}),
        (r"loss (?!x)(?P<n>\d+)", {"loss "}),
        (r"épôque(\d)", {"qu"}),
        (r"(unclosed", None),
    ],
)
def test_the_texts_of_a_pattern(pattern: str, found: set[str] | None) -> None:
    assert needles(pattern) == (None if found is None else frozenset(found))


def test_a_text_that_holds_another_says_no_more() -> None:
    assert union([frozenset({"memory"}), frozenset({"out of memory", "x"})]) == {"memory", "x"}
    assert union([frozenset({"memory"}), None]) is None


PARTS = st.sampled_from(
    r"loss val ar 1 - \. e n (?:a|lo) (?:s|) s* s+ \s \S . \b ^ $ [ab] (?=a) (?:va){2} x? :".split()
)
BITS = st.sampled_from(
    ["loss", "val", "ar", "lo", "a", "s", "1", "-", ".", "e", "n", ":", " ", "x", "[", "]", "[ ",
     "tensor(", "array([", "float32(", ")", "])", "1.5", "nan", "-inf", "2e", "١", "ſ", "é"]
)  # fmt: skip


@settings(max_examples=500)
@given(st.lists(PARTS, min_size=1, max_size=6), st.lists(BITS, max_size=12))
def test_no_line_is_lost(parts: list[str], bits: list[str]) -> None:
    pattern, line = "".join(parts), "".join(bits)
    try:
        re.compile(pattern)
    except re.error:
        return
    found = needles(pattern, is_cleaned=False)
    if found is not None and re.search(pattern, line):
        assert any(text in line for text in found)
    number = Number(pattern + r"([-+.\d]+)")
    cleaned = number.cleaned(line)
    if number.needles is not None and re.search(pattern + r"([-+.\d]+|nan|[-+]?inf)", cleaned):
        assert ESCAPE in line or any(text in line for text in number.needles)
