"""Write the parts of a drafted menu as TOML: values, patterns, a knob, a constraint."""

from __future__ import annotations

import json

from agent.menu.proxy_menu import Constraint
from agent.menu.scripts.option import Option
from agent.menu.scripts.sorting import Turned
from autoresearch.plain_text import plain
from autoresearch.values import Scalar

MOST_DOC = 160


def knob_lines(one: Turned) -> list[str]:
    """Return a knob's table."""
    option, knob = one.option, one.knob
    said = doc_of(option)
    return [
        f"[knobs.{knob.name}]  # line {option.line}",
        *knob.domain.toml_lines(),
        f"default = {toml(knob.default)}",
        *([f"doc = {toml(said)}"] if said else []),
    ]


def doc_of(option: Option) -> str:
    """Return the script's help for an option, on one line."""
    return " ".join(plain(option.doc).split())[:MOST_DOC]


def constraint_lines(one: Constraint) -> list[str]:
    """Return a constraint's table."""
    return ["[[constraints]]", f"expr = {toml(one.expr)}", f"doc = {toml(one.doc)}"]


def braced(word: str) -> str:
    """Escape the braces of a literal word."""
    return word.replace("{", "{{").replace("}", "}}")


def as_it_is(option: Option) -> str:
    """Return ``max_iters = 5000  (line 12)``."""
    default = "" if option.default is None else f" = {short(option.default)}"
    return f"{option.name}{default}  (line {option.line})"


def short(value: Scalar) -> str:
    """Return a value, a long one cut."""
    text = toml(value)
    return plain(text if len(text) <= 60 else f"{text[:57]}...")


def literal(pattern: str) -> str:
    """Return a pattern as a TOML string, without escapes if possible."""
    plain_enough = "'" not in pattern and pattern.isprintable()
    return f"'{pattern}'" if plain_enough else toml(pattern)


def toml(value: Scalar) -> str:
    """Return a string, number or boolean as TOML, which equals its JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
