"""Answer simple questions about a script's syntax tree."""

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping

from agent.menu.scripts.option import typed
from autoresearch.values import Scalar
from trainer.script.constants import assignments
from trainer.script.literals import Literal, NotLiteralError, literal


class Names:
    """Values of a script's names that are known without running it."""

    def __init__(self, tree: ast.Module) -> None:
        self._values: dict[str, Literal] = {}
        self.enumerations = {
            node.name: {name: value for one in node.body for name, value in assignments(one)}
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            if any(last_name(base).endswith("Enum") for base in node.bases)
        }
        """The members of each enumeration, with the code of their values."""
        for statement in tree.body:
            for name, value in assignments(statement):
                try:
                    self._values.setdefault(name, literal(value, self._values))
                except NotLiteralError:
                    continue

    def default(self, node: ast.expr | None, kind: str) -> tuple[Scalar | None, str]:
        """Return an option's default in its declared type, and why it cannot be read; empty if it
        can."""
        try:
            value = None if node is None else literal(node, self._values)
        except NotLiteralError as error:
            return None, f"its default cannot be read: {error}"
        if isinstance(value, tuple):
            return None, "its default cannot be read: it is a sequence of values"
        return typed(value, kind), ""

    def known(self, node: ast.expr | None) -> Literal:
        """Return the value of an expression; None if it is computed or there is none."""
        try:
            return None if node is None else literal(node, self._values)
        except NotLiteralError:
            return None

    def text(self, node: ast.expr | None) -> str:
        """Return a text; empty if it is another value or computed."""
        value = self.known(node)
        return value if isinstance(value, str) else ""

    def number(self, node: ast.expr | None) -> float | None:
        """Return a number; None if it is another value or computed."""
        value = self.known(node)
        return value if isinstance(value, int | float) else None

    def choices(self, node: ast.expr | None) -> tuple[Scalar, ...]:
        """Return a sequence of scalars; empty if it is another value or computed."""
        value = self.known(node)
        items = value if isinstance(value, tuple) else ()
        scalars = tuple(one for one in items if isinstance(one, bool | int | float | str))
        return scalars if len(scalars) == len(items) else ()


def dotted(node: ast.expr) -> str:
    """Return ``a.b.c``, omitting parts that are not names."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def last_name(node: ast.expr) -> str:
    """Return ``c`` of ``a.b.c``."""
    return dotted(node).rpartition(".")[2]


def keywords(call: ast.Call) -> Mapping[str, ast.expr]:
    """Return a call's arguments by name."""
    return {one.arg: one.value for one in call.keywords if one.arg is not None}


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield every call, in the order of the text."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return iter(sorted(found, key=lambda call: (call.lineno, call.col_offset)))


def remainders(node: ast.AST) -> list[ast.BinOp]:
    """Return every ``a % b`` in the condition of an ``if``; none if the condition has an ``or``."""
    parts = list(ast.walk(node.test)) if isinstance(node, ast.If) else []
    if any(isinstance(one, ast.Or) for one in parts):
        return []
    return [one for one in parts if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod)]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function, in the order of the text."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return iter(sorted((n for n in ast.walk(tree) if isinstance(n, kinds)), key=lambda f: f.lineno))


def comments(source: str) -> dict[int, str]:
    """Return the comments after code, by line number."""
    found = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip():
                found[token.start[0]] = token.string.lstrip("#").strip()
    except (tokenize.TokenError, SyntaxError):
        pass  # the tokenizer refuses some text that the parser accepts: then no comments
    return found
