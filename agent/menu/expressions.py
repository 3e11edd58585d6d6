"""Parse and evaluate a menu's constraints and ties: arithmetic, comparison and logic only.

    expression  literals (int, float, string, True, False), names, parentheses
                + - * / // % **        on numbers
                < <= > >= == !=        chained as in Python; == and != also on strings and booleans
                in, not in             a tuple of literals: precision in ("bf16", "fp8")
                and, or, not           on booleans; "a implies b" is written: not a or b
    a if condition else b  both of one kind

Python's own parser reads the text and this module walks the tree: nothing is ever executed as
Python. Every node outside the list above is refused when the menu is loaded, and so are unknown
names and operands of the wrong kind, so a parsed expression can only fail by arithmetic (a
division by zero, a number too large), which :meth:`Expression.holds` and :meth:`Expression.number`
report in a clause. Size, depth, exponents and magnitudes are bounded, so it also cannot take long.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from autoresearch.errors import MenuError
from autoresearch.values import Scalar
from autoresearch.words import did_you_mean, json_text

MAX_CHARACTERS = 1000
MAX_NODES = 200
MAX_DEPTH = 40
MAX_EXPONENT = 64
MAX_MAGNITUDE = 1e30

Kind: TypeAlias = Literal["number", "text", "truth"]


class ExpressionError(MenuError, ValueError):
    """An expression outside the language, or one without a value; the message is one clause."""


@dataclass(frozen=True, slots=True)
class Name:
    """Kind and possible values of a name in an expression."""

    kind: Kind
    texts: tuple[str, ...] = ()
    """The only strings it can be, if known; comparing it with another is an error."""


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
    """A parsed condition or numeric formula, checked against the names it may use."""

    source: str
    names: frozenset[str]
    """Names that it uses."""
    root: ast.expr

    @classmethod
    def parse(
        cls,
        source: str,
        names: Mapping[str, Name],
        kind: Literal["truth", "number"] = "truth",
    ) -> Expression:
        """Parse a condition, or a formula of a number.

        :raises ExpressionError: if it is outside the language, is too large, uses a name that is
            not in ``names``, mixes kinds, or is not of the given ``kind``.
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
        except SyntaxError as error:
            raise ExpressionError(f"it cannot be read: {error.msg}") from error
        except (ValueError, MemoryError, RecursionError) as error:
            raise ExpressionError(
                "it cannot be read: it is malformed or nested too deeply"
            ) from error
        reader = _Reader(names)
        reader.expect(kind, root, 0)
        return cls(source, frozenset(reader.used), root)

    def holds(self, values: Mapping[str, Scalar]) -> bool:
        """Return whether it is true of these values, which must cover :attr:`names`.

        :raises ExpressionError: if arithmetic gives it no value.
        """
        return bool(_value(self.root, values))

    def number(self, values: Mapping[str, Scalar]) -> int | float:
        """Return the formula's value for these values, which must cover :attr:`names`.

        :raises ExpressionError: if arithmetic gives it no value.
        """
        return _value(self.root, values)  # type: ignore[no-any-return]


_ARITHMETIC: Mapping[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}


class _Reader:
    """Walks a tree once, refuses nodes outside the language, and infers the kind of each node."""

    def __init__(self, names: Mapping[str, Name]) -> None:
        self.names = names
        self.used: set[str] = set()
        self.nodes = 0

    def expect(self, kind: Kind, node: ast.expr, depth: int) -> None:
        found = self.kind(node, depth)
        if found != kind:
            words = {"number": "a number", "text": "a string", "truth": "a condition"}
            raise ExpressionError(f"'{_text(node)}' is {words[found]} where {words[kind]} belongs")

    def kind(self, node: ast.expr, depth: int) -> Kind:  # noqa: PLR0911 (a dispatch)
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise ExpressionError("it is too large or nested too deeply; split it into several")
        match node:
            case ast.Constant(value=value):
                return kind_of(value)
            case ast.Name(id=name) if name in self.names:
                self.used.add(name)
                return self.names[name].kind
            case ast.Name(id=name):
                raise ExpressionError(
                    f"{json_text(name)} is not a known name{did_you_mean(name, self.names)}"
                )
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.expect("truth", operand, depth + 1)
                return "truth"
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                self.expect("number", operand, depth + 1)
                return "number"
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                self.expect("number", left, depth + 1)
                self.expect("number", right, depth + 1)
                return "number"
            case ast.BoolOp(values=operands):
                for operand in operands:
                    self.expect("truth", operand, depth + 1)
                return "truth"
            case ast.Compare():
                self._compare(node, depth + 1)
                return "truth"
            case ast.IfExp(test=test, body=body, orelse=other):
                self.expect("truth", test, depth + 1)
                kind = self.kind(body, depth + 1)
                self.expect(kind, other, depth + 1)
                return kind
        raise ExpressionError(
            f"'{_text(node)}' is not part of the constraint language; use names, literals, "
            "arithmetic, comparisons, and, or, not, if … else"
        )

    def _compare(self, node: ast.Compare, depth: int) -> None:
        left = node.left
        for position, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            if isinstance(op, ast.In | ast.NotIn):
                if position != len(node.ops) - 1:
                    raise ExpressionError("nothing may follow 'in' in a chain; use 'and'")
                self._membership(left, right, depth)
            elif isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                self.expect("number", left, depth)
                self.expect("number", right, depth)
            elif isinstance(op, ast.Eq | ast.NotEq):
                self.expect(self.kind(left, depth), right, depth)
                self._check_text(left, right)
                self._check_text(right, left)
            else:
                raise ExpressionError("'is' is not part of the constraint language; use ==")
            left = right

    def _membership(self, left: ast.expr, right: ast.expr, depth: int) -> None:
        if not isinstance(right, ast.Tuple) or not right.elts:
            raise ExpressionError('"in" needs literals in parentheses: x in ("a", "b")')
        kind = self.kind(left, depth)
        for element in right.elts:
            if not isinstance(element, ast.Constant | ast.UnaryOp):
                raise ExpressionError(f"'{_text(element)}' after 'in' is not a literal")
            self.expect(kind, element, depth + 1)
            self._check_text(left, element)

    def _check_text(self, name: ast.expr, literal: ast.expr) -> None:
        if isinstance(name, ast.Name) and isinstance(literal, ast.Constant):
            texts = self.names[name.id].texts
            if texts and literal.value not in texts:
                raise ExpressionError(
                    f"{name.id} is never {json_text(literal.value)}"
                    f"{did_you_mean(str(literal.value), texts)}"
                )


def _value(node: ast.expr, values: Mapping[str, Scalar]) -> Any:  # noqa: PLR0911 (a dispatch)
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, values)
        case ast.UnaryOp(op=op, operand=operand):
            number = _value(operand, values)
            return -number if isinstance(op, ast.USub) else number
        case ast.BinOp(left=left, op=op, right=right):
            return _compute(type(op), _value(left, values), _value(right, values))
        case ast.BoolOp(op=ast.And(), values=operands):
            return all(_value(operand, values) for operand in operands)
        case ast.BoolOp(values=operands):
            return any(_value(operand, values) for operand in operands)
        case ast.IfExp(test=test, body=body, orelse=other):
            return _value(body if _value(test, values) else other, values)
        case ast.Tuple(elts=elements):
            return tuple(_value(element, values) for element in elements)
        case ast.Compare(left=first, ops=ops, comparators=rest):
            left = _value(first, values)
            for comparison, comparator in zip(ops, rest, strict=True):
                right = _value(comparator, values)
                if not _COMPARISONS[type(comparison)](left, right):
                    return False
                left = right
            return True
    raise AssertionError(f"{type(node).__name__} passed the reader")


def _compute(op: type[ast.operator], left: Any, right: Any) -> Any:
    symbol, function = _ARITHMETIC[op]

    def said(problem: str) -> ExpressionError:
        return ExpressionError(f"{json_text(left)} {symbol} {json_text(right)} {problem}")

    if op is ast.Pow and abs(right) > MAX_EXPONENT:
        raise said(f"has an exponent beyond ±{MAX_EXPONENT}")
    try:
        result = function(left, right)
    except ZeroDivisionError as error:
        raise said("divides by zero") from error
    except OverflowError as error:
        raise said("is too large") from error
    if isinstance(result, complex):
        raise said("is not a real number")
    if not -MAX_MAGNITUDE <= result <= MAX_MAGNITUDE:
        raise said(f"is beyond ±{MAX_MAGNITUDE:g}")
    return result


def _text(node: ast.AST) -> str:
    """Return the node as source text, short and on one line."""
    try:
        text = ascii(ast.unparse(node))[1:-1]
    except (RecursionError, ValueError):
        text = type(node).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."
