"""Answer simple questions about a script's syntax tree, and show what it would print."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator


def text_in(node: ast.expr) -> str:
    """Return a literal text; empty for any other expression."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def dotted(node: ast.expr) -> str:
    """Return ``a.b.c``, omitting parts that are not names."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def last_name(node: ast.expr) -> str:
    """Return ``c`` of ``a.b.c``."""
    return dotted(node).rpartition(".")[2]


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield every call, in the order of the text."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return iter(sorted(found, key=lambda call: (call.lineno, call.col_offset)))


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


# --- what a script would print -------------------------------------------------------------------

_PERCENT = re.compile(r"%(?:\(\w+\))?[-#0 +]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa%]")
_FIELD = re.compile(r"\{[^{}]*\}")
_PRINTS = {"print", "info", "write", "log", "echo", "warning", "print0", "log0", "secho"}
_ANY_NUMBER = "1"


_EVALUATES = re.compile(r"(?:\w+_)?(test|val|validate|validation|eval|evaluate|evaluation)(_\w+)?")


def evaluating(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Yield the functions that score, by their names."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or "train" in node.name:
            continue
        if _EVALUATES.fullmatch(node.name):
            yield node


def lines_in(tree: ast.AST) -> list[str]:
    """Return the lines that a script's calls would print, with a number for each value."""
    lines: list[str] = []
    for call in calls(tree):
        is_tracked = bool(call.args) and isinstance(call.args[0], ast.Dict)  # wandb.log({…})
        if last_name(call.func) in _PRINTS and not is_tracked:
            lines += " ".join(_shown(one) for one in _printed(call)).splitlines()
    return lines


def _printed(call: ast.Call) -> list[ast.expr]:
    """Return what a call prints: for a logger's ``("loss %.3f", x)`` the text alone."""
    is_logged = isinstance(call.func, ast.Attribute) and len(call.args) > 1
    return call.args[:1] if is_logged and "%" in text_in(call.args[0]) else call.args


def _shown(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return _PERCENT.sub(_ANY_NUMBER, text) if "%" in text else text
        case ast.JoinedStr(values=parts):
            return "".join(map(_shown, parts))
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str() as text), attr="format")):
            return _FIELD.sub(_ANY_NUMBER, text)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _shown(left) + _shown(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _shown(left)
    return _ANY_NUMBER
