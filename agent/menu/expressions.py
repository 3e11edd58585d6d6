"""Parse and evaluate a menu's constraints and ties: arithmetic, comparison and logic only.

    expression  literals (int, float, string, True, False), names, parentheses
                + - * / // % **        on numbers
                < <= > >= == !=        chained as in Python; == and != also on strings and booleans
                in, not in             a tuple of literals: precision in ("bf16", "fp8")
                and, or, not           on booleans; "a implies b" is written: not a or b
    a if condition else b  both of one kind

Python's own parser reads the text and this module walks the tree: nothing is ever executed as
Python. Every node outside the list above is refused when the menu is loaded, and so are unknown
names. Operands of the wrong kind and arithmetic without a value (a division by zero, a number too
large) are reported in a clause. Size, exponents and magnitudes are bounded, so that an expression
cannot take long.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from autoresearch.errors import MenuError
from autoresearch.values import Scalar
from autoresearch.words import did_you_mean, json_text

MAX_CHARACTERS = 1000
MAX_NODES = 200
MAX_EXPONENT = 64
MAX_MAGNITUDE = 1e30

Kind: TypeAlias = Literal["number", "text", "truth"]


class ExpressionError(MenuError, ValueError):
    """An expression outside the language, or one without a value; the message is one clause."""


def kind_of(value: object) -> Kind:
    """Return the kind of a scalar.

    :raises ExpressionError: on anything else, and on a number out of bounds.
    """
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float):
        # A NaN compares false with everything, so it is refused too.
        if not -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE:
            raise ExpressionError(f"{json_text(value)} is not a number within ±{MAX_MAGNITUDE:g}")
        return "number"
    raise ExpressionError(f"{value!r:.40} is not a number, a string, True or False")


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed condition or formula of a number."""

    source: str
    names: frozenset[str]
    """Names that it uses."""
    root: ast.expr

    @classmethod
    def parse(cls, source: str, names: Collection[str]) -> Expression:
        """Parse a condition or a formula.

        :raises ExpressionError: if it is outside the language, is too large, or uses a name that is
            not in ``names``.
        """
        if len(source) > MAX_CHARACTERS:
            raise ExpressionError(
                f"it is {len(source)} characters long; write at most {MAX_CHARACTERS}, and split "
                "a long condition into several"
            )
        try:
            with warnings.catch_warnings():
                # What Python only warns about, such as "1or x", is refused.
                warnings.simplefilter("error")
                root = ast.parse(source.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            why = getattr(error, "msg", "it is malformed or nested too deeply")
            raise ExpressionError(f"it cannot be read: {why}") from error
        nodes = list(ast.walk(root))
        if sum(isinstance(node, ast.expr) for node in nodes) > MAX_NODES:
            raise ExpressionError("it is too large or nested too deeply; split it into several")
        lists = [id(items) for node in nodes for items in _lists(node)]
        for node in nodes:
            if type(node) not in _LANGUAGE or (
                isinstance(node, ast.Tuple) and id(node) not in lists
            ):
                raise ExpressionError(
                    f"'{_text(node)}' is not part of the constraint language; use names, literals, "
                    "arithmetic, comparisons, and, or, not, if … else"
                )
            if isinstance(node, ast.Constant):
                kind_of(node.value)
            if isinstance(node, ast.Name) and node.id not in names:
                raise ExpressionError(
                    f"{json_text(node.id)} is not a known name{did_you_mean(node.id, names)}"
                )
        used = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
        return cls(source, used, root)

    def holds(self, values: Mapping[str, Scalar]) -> bool:
        """Return whether it is true of these values, which must cover :attr:`names`.

        :raises ExpressionError: if it mixes kinds or arithmetic gives it no value.
        """
        return bool(_of("truth", self.root, values))

    def number(self, values: Mapping[str, Scalar]) -> int | float:
        """Return the formula's value for these values, which must cover :attr:`names`.

        :raises ExpressionError: if it mixes kinds or arithmetic gives it no value.
        """
        return _of("number", self.root, values)  # type: ignore[no-any-return]

    def problem(self, values: Mapping[str, Scalar]) -> str | None:
        """Return why the condition is not met, as a predicate with the values seen; None if it
        is."""
        try:
            if self.holds(values):
                return None
            problem = "does not hold"
        except ExpressionError as error:
            problem = f"has no value ({error})"
        return problem + self.seen(values)

    def seen(self, values: Mapping[str, Scalar]) -> str:
        """Return `` where d_model = 64`` for the names that it uses; empty if it uses none."""
        used = (f"{name} = {json_text(values[name])}" for name in values if name in self.names)
        listed = ", ".join(used)
        return f" where {listed}" if listed else ""


_ARITHMETIC: Mapping[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
}
_ORDERED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    **_ORDERED,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
_LANGUAGE = {
    *(ast.Constant, ast.Name, ast.Load, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.BinOp),
    *(ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.IfExp, ast.Tuple, *_ARITHMETIC, *_COMPARISONS),
}


def _lists(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the lists of literals that a comparison searches.

    :raises ExpressionError: if it searches anything else, or compares again.
    """
    pairs = list(zip(node.ops, node.comparators, strict=True)) if type(node) is ast.Compare else []
    for op, items in pairs:
        if isinstance(op, ast.In | ast.NotIn):
            elements = items.elts if isinstance(items, ast.Tuple) else []
            are_literals = all(isinstance(one, ast.Constant | ast.UnaryOp) for one in elements)
            if len(pairs) > 1 or not elements or not are_literals:
                raise ExpressionError('"in" needs literals in parentheses: x in ("a", "b")')
            yield items


def _of(kind: Kind, node: ast.expr, values: Mapping[str, Scalar]) -> Any:
    """Return the value of a node, which must be of a kind."""
    value = _value(node, values)
    if kind_of(value) != kind:
        words = {"number": "a number", "text": "a string", "truth": "a condition"}
        raise ExpressionError(
            f"'{_text(node)}' is {words[kind_of(value)]} where {words[kind]} belongs"
        )
    return value


def _value(node: ast.expr, values: Mapping[str, Scalar]) -> Any:  # noqa: PLR0911 (a dispatch)
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _of("truth", operand, values)
        case ast.UnaryOp(op=op, operand=operand):
            number = _of("number", operand, values)
            return -number if isinstance(op, ast.USub) else number
        case ast.BinOp(left=left, op=op, right=right):
            return _compute(type(op), _of("number", left, values), _of("number", right, values))
        case ast.BoolOp(op=ast.And(), values=operands):
            return all(_of("truth", operand, values) for operand in operands)
        case ast.BoolOp(values=operands):
            return any(_of("truth", operand, values) for operand in operands)
        case ast.IfExp(test=test, body=body, orelse=other):
            return _value(body if _of("truth", test, values) else other, values)
        case ast.Tuple(elts=elements):
            return tuple(_value(element, values) for element in elements)
        case ast.Compare():
            return _compare(node, values)
    raise AssertionError(f"{type(node).__name__} passed the reader")


def _compare(node: ast.Compare, values: Mapping[str, Scalar]) -> bool:
    left = _value(node.left, values)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = _value(comparator, values)
        items = right if isinstance(right, tuple) else (right,)
        kinds = {kind_of(left), *map(kind_of, items)}
        if len(kinds) > 1 or (type(op) in _ORDERED and kinds != {"number"}):
            raise ExpressionError(f"'{_text(node)}' compares values of different kinds")
        if not _COMPARISONS[type(op)](left, right):
            return False
        left = right
    return True


def _compute(op: type[ast.operator], left: Any, right: Any) -> Any:
    symbol, function = _ARITHMETIC[op]
    result = None
    if op is not ast.Pow or abs(right) <= MAX_EXPONENT:
        with suppress(ArithmeticError):
            result = function(left, right)
    if not isinstance(result, int | float) or not -MAX_MAGNITUDE <= result <= MAX_MAGNITUDE:
        said = f"{json_text(left)} {symbol} {json_text(right)}"
        raise ExpressionError(f"{said} is not a number within ±{MAX_MAGNITUDE:g}")
    return result


def _text(node: ast.AST) -> str:
    """Return the node as source text, short and on one line."""
    try:
        text = ascii(ast.unparse(node))[1:-1]
    except (RecursionError, ValueError):
        text = type(node).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."
