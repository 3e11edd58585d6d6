"""Tied fields: what of a config follows from the knobs, so that turning one moves the rest along.

``[tied]`` in a menu holds a formula for each, over knobs and constants, in the language of
:mod:`agent.menu.expressions`: ``n_head = "d_model / 128"`` makes every head 128 wide whatever the
width is. A formula may also use the fields tied before it. A proposal cannot set a tied field, so
the shape that the formulas describe is kept by every config of the menu."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import get_type_hints

from agent.menu.expressions import Expression, ExpressionError, Name
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from autoresearch.words import json_text
from trainer.spec import Config


@dataclass(frozen=True, slots=True)
class Tie:
    """A numeric field of Config and the formula it follows."""

    name: str
    expression: Expression
    knobs: tuple[str, ...]
    """The knobs the formula reads, itself or through an earlier tie, in the menu's order: turning
    one of them moves the field."""
    of_config: bool = True
    """Whether the field is one of Config; a command's is an int where it comes to a whole one."""

    @classmethod
    def parse(
        cls,
        name: str,
        source: str,
        names: Mapping[str, Name],
        knobs: Iterable[str],
        earlier: Mapping[str, Tie],
        *,
        of_config: bool = True,
    ) -> Tie:
        """Read the formula of the field ``name`` over ``names``, of which some are knobs, and over
        the fields that were tied ``earlier``.

        :raises ExpressionError: where it cannot be read, or follows no knob.
        """
        if of_config and _hint(name) not in {int, int | None, float}:
            raise ExpressionError(
                f"{name} is not a number, and only numbers follow from others; make it a knob or "
                "a constant"
            )
        known = {**names, **dict.fromkeys(earlier, Name("number"))}
        expression = Expression.parse(source, known, "number")
        read = set(expression.names)
        read.update(*(earlier[used].knobs for used in expression.names if used in earlier))
        followed = tuple(knob for knob in knobs if knob in read)
        if not followed:
            raise ExpressionError("it follows no knob; make it a constant")
        return cls(name, expression, followed, of_config)

    def __str__(self) -> str:
        """``n_head = d_model / 128``"""
        return f"{self.name} = {' '.join(self.expression.source.split())}"

    def value(self, values: Mapping[str, Scalar]) -> Scalar:
        """What the field is where knobs, constants and earlier ties have these values.

        :raises SpecError: where the formula has no value, or one that is not whole for a field
            that is counted.
        """
        try:
            number = self.expression.number(values)
        except ExpressionError as error:
            raise SpecError(f"{self} has no value{self._seen(values)}: {error}") from error
        if not self.of_config:
            return int(number) if number == int(number) else float(number)
        if _hint(self.name) is float:
            return float(number)
        if number != int(number):
            raise SpecError(
                f"{self} comes to {json_text(number)}{self._seen(values)}, not a whole one"
            )
        return int(number)

    def _seen(self, values: Mapping[str, Scalar]) -> str:
        used = (name for name in values if name in self.expression.names)
        return f" where {', '.join(f'{name} = {json_text(values[name])}' for name in used)}"


@cache
def _hint(name: str) -> object:
    """The field's type without its bounds."""
    return get_type_hints(Config)[name]
