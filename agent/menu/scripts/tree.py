"""Small questions to a script's syntax tree."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping

from autoresearch.values import Scalar
from trainer.script.constants import assignments
from trainer.script.literals import Literal, NotLiteralError, literal


class Names:
    """What the names of a script stand for, where that can be said without running it."""

    def __init__(self, tree: ast.Module) -> None:
        self._values: dict[str, Literal] = {}
        for statement in tree.body:
            for name, value in assignments(statement):
                try:
                    self._values.setdefault(name, literal(value, self._values))
                except NotLiteralError:
                    continue

    def value(self, node: ast.expr | None) -> Literal:
        """The value of an expression; None where there is none or it is not known.

        :raises NotLiteralError: where it is computed.
        """
        return None if node is None else literal(node, self._values)

    def scalar(self, node: ast.expr | None) -> Scalar | None:
        """As :meth:`value`, of what is no row.

        :raises NotLiteralError: where it is computed or a row.
        """
        value = self.value(node)
        if isinstance(value, tuple):
            raise NotLiteralError("it is a row of values")
        return value

    def text(self, node: ast.expr | None) -> str:
        """A text; empty where it is none or computed."""
        try:
            value = self.value(node)
        except NotLiteralError:
            return ""
        return value if isinstance(value, str) else ""

    def choices(self, node: ast.expr | None) -> tuple[Scalar, ...]:
        """A row of scalars; empty where it is none or computed."""
        try:
            value = self.value(node)
        except NotLiteralError:
            return ()
        if not isinstance(value, tuple):
            return ()
        scalars = tuple(one for one in value if isinstance(one, bool | int | float | str))
        return scalars if len(scalars) == len(value) else ()


def dotted(node: ast.expr) -> str:
    """``a.b.c``; what is no name in it is left out."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def last_name(node: ast.expr) -> str:
    """``c`` of ``a.b.c``."""
    return dotted(node).rpartition(".")[2]


def keywords(call: ast.Call) -> Mapping[str, ast.expr]:
    """A call's arguments by name."""
    return {one.arg: one.value for one in call.keywords if one.arg is not None}


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Every call, in the order of the text."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return iter(sorted(found, key=lambda call: (call.lineno, call.col_offset)))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function, in the order of the text."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return iter(sorted((n for n in ast.walk(tree) if isinstance(n, kinds)), key=lambda f: f.lineno))


def comments(source: str) -> dict[int, str]:
    """What stands behind the code of a line, by the line's number."""
    found = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip():
                found[token.start[0]] = token.string.lstrip("#").strip()
    except (tokenize.TokenError, SyntaxError):
        pass  # what the parser took and the tokenizer does not: no comments then
    return found
