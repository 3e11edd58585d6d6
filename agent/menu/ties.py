"""Define tied fields, which follow the knobs, so that changing a knob moves them along.

``[tied]`` in a menu holds a formula for each, over knobs and constants, in the language of
:mod:`agent.menu.expressions`. With ``n_head = "d_model / 128"`` every head is 128 wide whatever the
width. A formula may also use fields tied before it. A proposal cannot set a tied field, so every
config of the menu keeps the shape that the formulas describe.
"""

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
    """A numeric field of Config and its formula."""

    name: str
    expression: Expression
    knobs: tuple[str, ...]
    """Knobs that the formula reads, directly or through an earlier tie, in the menu's order."""
    of_config: bool = True
    """Whether the field is one of Config; a command's field is an int if its value is whole."""

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
        """Parse the formula of the field ``name`` over ``names``, some of which are knobs, and over
        the fields tied ``earlier``.

        :raises ExpressionError: if it cannot be parsed, or follows no knob.
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
        """Return ``n_head = d_model / 128``."""
        return f"{self.name} = {' '.join(self.expression.source.split())}"

    def value(self, values: Mapping[str, Scalar]) -> Scalar:
        """Return the field's value for these values of knobs, constants and earlier ties.

        :raises SpecError: if the formula has no value, or a fractional one for a field that is
            counted.
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
                f"{self} gives {json_text(number)}{self._seen(values)}, not a whole one"
            )
        return int(number)

    def _seen(self, values: Mapping[str, Scalar]) -> str:
        used = (name for name in values if name in self.expression.names)
        return f" where {', '.join(f'{name} = {json_text(values[name])}' for name in used)}"


@cache
def _hint(name: str) -> object:
    """Return the field's type without its bounds."""
    return get_type_hints(Config)[name]
