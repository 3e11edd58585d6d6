"""Find the marked regions of a training script, and replace the code in them.

    # autoresearch: slot activation
    x = torch.relu(x)
    # autoresearch: end

A mark stands on a line of its own, as deep as the code between the marks, which is one or more
whole statements. The code of a region is compared and stored without comments and in Python's own
spelling, so that equal code is equal text.
"""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass

from autoresearch.errors import SpecError
from autoresearch.words import did_you_mean, json_text

_MARK = re.compile(r"#\s*autoresearch:\s*(slot\s+(?P<name>[A-Za-z]\w*)|end)\s*")


@dataclass(frozen=True, slots=True)
class Region:
    """One marked region, and its code at the left margin."""

    name: str
    begin: int
    """Line of the opening mark, from 1."""
    end: int
    """Line of the closing mark."""
    indent: str
    code: str


def regions(source: str) -> dict[str, Region]:
    """Return a script's regions by name, in the order of the text.

    :raises SpecError: if marks do not pair up, or if a region is not whole statements.
    """
    lines = io.StringIO(source, newline="").readlines()
    found: dict[str, Region] = {}
    opened: tuple[str, int] | None = None
    for line, name in _marks(lines):
        if name and opened:
            raise SpecError(f"line {line} opens slot {name} inside slot {opened[0]}; end that one")
        if name:
            if name in found:
                raise SpecError(f"line {line} opens slot {name} a second time; rename one of them")
            opened = name, line
        elif opened is None:
            raise SpecError(f"line {line} ends a slot, and none is open; remove it or open a slot")
        else:
            found[opened[0]] = _region(opened[0], opened[1], line, lines)
            opened = None
    if opened:
        raise SpecError(
            f"slot {opened[0]} on line {opened[1]} has no end; add a line # autoresearch: end"
        )
    return found


def replaced(source: str, codes: Mapping[str, str]) -> str:
    """Return the script with the code of these regions replaced, and every other line unchanged.

    :raises SpecError: if there is no such region, or if the code is not whole statements.
    """
    if not codes:
        return source
    known = regions(source)
    for name in codes:
        if name not in known:
            raise SpecError(f"the script has no slot {json_text(name)}{did_you_mean(name, known)}")
    lines = io.StringIO(source, newline="").readlines()
    for region in sorted((known[name] for name in codes), key=lambda one: one.end, reverse=True):
        mark = lines[region.begin - 1]
        written = textwrap.indent(normalized(codes[region.name]), region.indent).split("\n")
        lines[region.begin : region.end - 1] = [
            line + mark[len(mark.rstrip()) :] for line in written
        ]
    text = "".join(lines)
    if {one.name: one.code for one in regions(text).values()} != {
        one.name: normalized(codes.get(one.name, one.code)) for one in known.values()
    }:
        raise SpecError("the script's slots could not be rewritten; write their code without marks")
    return text


def normalized(code: str) -> str:
    """Return statements in Python's own spelling, without comments.

    :raises SpecError: if they are not whole statements.
    """
    try:
        text = ast.unparse(ast.parse(textwrap.dedent(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = error.msg if isinstance(error, SyntaxError) else error
        raise SpecError(f"the code is not whole statements of Python: {said}") from error
    if not text:
        raise SpecError("the code is empty; write at least one statement")
    return text


def _marks(lines: list[str]) -> list[tuple[int, str]]:
    """Return the line and the name of each mark; an empty name ends a region."""
    marks = []
    try:
        for token in tokenize.generate_tokens(iter([*lines, ""]).__next__):
            mark = _MARK.fullmatch(token.string) if token.type == tokenize.COMMENT else None
            if mark and not lines[token.start[0] - 1][: token.start[1]].strip():
                marks.append((token.start[0], mark["name"] or ""))
    except (tokenize.TokenError, SyntaxError) as error:
        raise SpecError(f"the script is not valid Python: {error}; fix it") from error
    return marks


def _region(name: str, begin: int, end: int, lines: list[str]) -> Region:
    mark = lines[begin - 1]
    try:
        code = normalized("".join(lines[begin : end - 1]))
    except SpecError as error:
        raise SpecError(f"slot {name} on line {begin}: {error}") from error
    return Region(name, begin, end, mark[: len(mark) - len(mark.lstrip())], code)
