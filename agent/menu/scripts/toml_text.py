"""The parts of a drafted menu as TOML: values, patterns, a knob, a constraint."""

from __future__ import annotations

import json

from agent.menu.proxy_menu import Constraint
from agent.menu.scripts.option import Option
from agent.menu.scripts.sorting import Turned
from autoresearch.plain_text import plain
from autoresearch.values import Scalar

MOST_DOC = 160


def knob_lines(one: Turned) -> list[str]:
    """A knob's table."""
    option, knob = one.option, one.knob
    said = doc_of(option)
    return [
        f"[knobs.{knob.name}]  # line {option.line}",
        *knob.domain.toml_lines(),
        f"default = {toml(knob.default)}",
        *([f"doc = {toml(said)}"] if said else []),
    ]


def doc_of(option: Option) -> str:
    """What the script says of an option, on one line."""
    return " ".join(plain(option.doc).split())[:MOST_DOC]


def constraint_lines(one: Constraint) -> list[str]:
    """A constraint's table."""
    return ["[[constraints]]", f"expr = {toml(one.expr)}", f"doc = {toml(one.doc)}"]


def braced(word: str) -> str:
    """A word as it is: its braces are none of the menu's."""
    return word.replace("{", "{{").replace("}", "}}")


def as_it_is(option: Option) -> str:
    """``max_iters = 5000  (line 12)``"""
    default = "" if option.default is None else f" = {short(option.default)}"
    return f"{option.name}{default}  (line {option.line})"


def short(value: Scalar) -> str:
    """A value where a long one is cut."""
    text = toml(value)
    return plain(text if len(text) <= 60 else f"{text[:57]}...")


def literal(pattern: str) -> str:
    """A pattern is best read without escapes."""
    plain_enough = "'" not in pattern and pattern.isprintable()
    return f"'{pattern}'" if plain_enough else toml(pattern)


def toml(value: Scalar) -> str:
    """A JSON string, number or boolean is the same TOML value."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
