"""Parse a script's f-strings, ``"…".format(…)``, ``"…" % …`` and ``print("…", x)`` into templates
with holes."""

import ast
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from agent.menu.scripts.tree import last_name

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
