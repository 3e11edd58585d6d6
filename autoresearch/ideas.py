"""Published ideas as functions for the slots of the built-in GPT, and the names of their code."""

import ast
import tomllib
from functools import cache, lru_cache
from importlib import resources

from pydantic import TypeAdapter

from autoresearch.values import Frozen

MOST_CHARACTERS = 4000
"""Longest function that is looked up."""


class Idea(Frozen):
    """A published idea as a function for one slot."""

    name: str
    slot: str
    source: str
    """Title of the paper."""
    year: int
    arxiv: str
    doc: str
    """The formula in words, and what of the source is left out."""
    code: str

    def __str__(self) -> str:
        return f"{self.name}: {self.doc} ({self.source}, {self.year}, arXiv {self.arxiv})"


@cache
def ideas() -> tuple[Idea, ...]:
    """Return every idea of the library, in the file's order."""
    text = resources.files("autoresearch").joinpath("library.toml").read_text("utf-8")
    return TypeAdapter(tuple[Idea, ...]).validate_python(tomllib.loads(text)["idea"])


@lru_cache(maxsize=4096)
def idea_name(code: str) -> str | None:
    """Return the name of the published idea that a function is; None for any other."""
    if len(code) > MOST_CHARACTERS:
        return None
    try:
        return _names().get(_body(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@cache
def _names() -> dict[str, str]:
    return {_body(idea.code): idea.name for idea in ideas()}


def _body(code: str) -> str:
    """Return the statements of a function, without its signature, comments and layout."""
    (function,) = ast.parse(code).body
    if not isinstance(function, ast.FunctionDef):
        return ""
    return "\n".join(map(ast.unparse, function.body))
