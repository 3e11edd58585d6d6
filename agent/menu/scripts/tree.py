"""Answer simple questions about a script's syntax tree.

Its f-strings, ``"…".format(…)``, ``"…" % …`` and ``print("…", x)`` become templates with holes.
"""

import ast
import io
import re
import string
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

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


_PERCENT = re.compile(r"%(?:\((\w+)\))?[-#0 +]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa%]")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DECIMALS = re.compile(r"\.(\d+)[fF%]$")
_PRINTS = {"print", "info", "write", "log", "echo", "warning", "debug", "print0", "log0", "secho"}


@dataclass(frozen=True, slots=True)
class Hole:
    """A place in a text that a value fills."""

    expression: str
    """Code of the value; empty if unknown."""
    decimals: int | None = None
    """Decimals in its format, if stated."""


Template: TypeAlias = tuple[str | Hole, ...]


def labelled(template: Template) -> Iterator[tuple[str, Hole]]:
    """Yield each hole with the text before it on its line, since the previous hole."""
    label = ""
    for part in template:
        if isinstance(part, Hole):
            yield re.split(r"[\r\n]", label)[-1], part
            label = ""
        else:
            label += part


def templates(tree: ast.Module) -> Iterator[tuple[int, bool, Template]]:
    """Yield every text with a hole, its line and whether a call prints it, nested ones once."""
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=func, args=[ast.Dict(), *_]) if last_name(func) == "log":
                # It sends figures to a tracker and prints none: wandb.log({…}).
                inside.update(ast.walk(node))
            case ast.Call(func=func) if last_name(func) in _PRINTS:
                parts: list[str | Hole] = []
                for argument in _put_in(node):
                    parts += [" "] if parts else []
                    parts += _parts(argument)
                    inside.update(ast.walk(argument))
                if any(isinstance(part, Hole) for part in parts):
                    yield node.lineno, True, tuple(parts)
            case ast.JoinedStr() | ast.Call() | ast.BinOp() if node not in inside:
                parts = _parts(node)
                if len(parts) > 1 and any(isinstance(part, Hole) for part in parts):
                    yield node.lineno, False, tuple(parts)


def _put_in(call: ast.Call) -> list[ast.expr]:
    """Return what a call prints: for a logger's ``("loss %.3f", x)`` the text with its values."""
    texts = [n for n, one in enumerate(call.args) if isinstance(one, ast.Constant)]
    match call.args[texts[0] :] if texts and isinstance(call.func, ast.Attribute) else []:
        case [ast.Constant(value=str() as text) as first, *rest] if rest and "%" in text:
            return [ast.BinOp(first, ast.Mod(), ast.Tuple(rest, ast.Load()))]
        case [ast.Constant(value=str() as text) as first, *rest] if rest and "{" in text:
            return [ast.Call(ast.Attribute(first, "format", ast.Load()), rest, [])]
    return call.args


def _parts(node: ast.expr) -> list[str | Hole]:  # noqa: PLR0911 (a kind of text each)
    match node:
        case ast.Constant(value=str() as text):
            return [_ESCAPES.sub("", text)]
        case ast.JoinedStr(values=values):
            return [part for value in values for part in _parts(value)]
        case ast.FormattedValue(value=value, format_spec=how):
            return [_hole(value, "".join(map(str, _parts(how))) if how else "")]
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str() as text), attr="format"), args=args
        ):
            return _formatted(_ESCAPES.sub("", text), args)
        case ast.BinOp(left=ast.Constant(value=str() as text), op=ast.Mod(), right=right):
            return _percented(
                _ESCAPES.sub("", text), right.elts if isinstance(right, ast.Tuple) else [right]
            )
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [*_parts(left), *_parts(right)]
        case ast.Call(func=ast.Attribute(attr="dumps"), args=[ast.Dict() as mapping, *_]):
            parts = _parts(mapping)
            return [one.replace("'", '"') if isinstance(one, str) else one for one in parts]
        case ast.Dict(keys=keys, values=values):
            shown: list[str | Hole] = []
            for key, value in zip(keys, values, strict=True):
                word = repr(key.value) if isinstance(key, ast.Constant) else "…"
                shown += [f", {word}: " if shown else f"{{{word}: ", _hole(value)]
            return shown
        case ast.Call(func=func, args=[text, *_]) if last_name(func) in {"style", "colored"}:
            return _parts(text)
    return [_hole(node)]


def _hole(node: ast.expr | None, how: str = "", name: str = "") -> Hole:
    """Return a hole with the format ``how``, such as ``>8.6f``; ``name`` stands for unknown
    code."""
    decimals = _DECIMALS.search(how)
    code = name if node is None else ast.unparse(node)[:200]
    return Hole(code, int(decimals[1]) if decimals else None)


def _formatted(text: str, args: list[ast.expr]) -> list[str | Hole]:
    parts: list[str | Hole] = []
    place = 0
    try:
        for before, name, how, _ in string.Formatter().parse(text):
            parts.append(before)
            if name is None:
                continue
            which = int(name) if name.isdigit() else place
            place += 1
            known = (not name or name.isdigit()) and which < len(args)
            parts.append(_hole(args[which] if known else None, how or "", name))
    except ValueError:
        return [text]
    return parts


def _percented(text: str, args: list[ast.expr]) -> list[str | Hole]:
    parts: list[str | Hole] = []
    end = place = 0
    for match in _PERCENT.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        if match[0].endswith("%"):
            parts.append("%")
            continue
        node = args[place] if place < len(args) else None
        parts.append(_hole(node, match[0], match[1] or ""))
        place += 1
    return [*parts, text[end:]]
