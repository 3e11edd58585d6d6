"""Evaluate an expression in a script's text if that needs no run."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from autoresearch.values import Scalar

Literal: TypeAlias = Scalar | tuple["Literal", ...] | None
"""A value that can be written down: a scalar, None, or a sequence of them."""

MAX_DEPTH = 40
MAX_EXPONENT = 64
MAX_MAGNITUDE = 1e30
MAX_CHARACTERS = 10_000

_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
_CASTS: Mapping[str, type] = {"int": int, "float": float}


class NotLiteralError(ValueError):
    """The expression's value is known only by running the script."""


def literal(node: ast.expr, depth: int = 0) -> Literal:
    """Return the value of a literal expression: ``2**19``, ``5 * 8``, ``-1``, ``int(1e6)``, and
    sequences of them.

    :raises NotLiteralError: for everything else, and for numbers beyond ±1e30.
    """
    if depth > MAX_DEPTH:
        raise NotLiteralError("it nests too deeply")
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return _bounded(value)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _number(literal(operand, depth + 1))
            return -number if isinstance(sign, ast.USub) else number
        case ast.BinOp(left=left, op=op, right=right):
            numbers = _number(literal(left, depth + 1)), _number(literal(right, depth + 1))
            return _combined(op, *numbers)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(literal(item, depth + 1) for item in items)
        case ast.Call(func=ast.Name(id=cast), args=[one], keywords=[]) if cast in _CASTS:
            return _bounded(_CASTS[cast](_number(literal(one, depth + 1))))
    raise NotLiteralError("it is computed")


def _number(value: Literal) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotLiteralError("it computes with a value that is not a number")
    return value


def _combined(op: ast.operator, left: int | float, right: int | float) -> Literal:
    if type(op) not in _OPERATORS:
        raise NotLiteralError("it is computed")
    if isinstance(op, ast.Pow | ast.LShift) and abs(right) > MAX_EXPONENT:
        raise NotLiteralError("its exponent is large")
    try:
        return _bounded(_OPERATORS[type(op)](left, right))
    except (ArithmeticError, TypeError, ValueError) as error:
        raise NotLiteralError("it has no value") from error


def _bounded(value: Literal) -> Literal:
    if isinstance(value, complex):
        raise NotLiteralError("it is a complex number")
    if isinstance(value, str) and len(value) > MAX_CHARACTERS:
        raise NotLiteralError("it is a long text")
    if isinstance(value, int | float) and not (
        math.isfinite(value) and abs(value) <= MAX_MAGNITUDE
    ):
        raise NotLiteralError("it is out of bounds")
    return value
