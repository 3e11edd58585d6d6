"""Ratios as knobs: how a config is asked for what is none of its fields.

A menu that searches ratios (the width of a head, d_ff to d_model) has knobs that Config has no
field for. ``[tied]`` formulas turn them into fields; a knob's ``reads`` is the way back, a formula
over the config's fields in the language of :mod:`agent.menu.expressions`, with ``n_kv_head`` the
number of KV heads whether the config names it or not. Fields are whole, so the formula may miss the
value that the config was made with by a little: the nearest choice, by ratio, is meant.
:meth:`~agent.menu.proxy_menu.ProxyMenu.apply` refuses a config that is read back as another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Self, get_type_hints

from agent.menu.expressions import Expression, ExpressionError, Name
from agent.menu.knob import Knob
from autoresearch.domains.choices import Ladder
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from trainer.spec import Config


@dataclass(frozen=True, slots=True)
class Reading:
    """The way from a config back to one knob."""

    name: str
    choices: tuple[int | float, ...]
    """Above zero."""
    expression: Expression

    @classmethod
    def of(cls, knob: Knob) -> Self:
        """The reading that the knob's ``reads`` describes.

        :raises ValueError: where it cannot be read, or the knob is no list of numbers above zero.
        """
        if not isinstance(knob.domain, Ladder) or min(knob.domain.choices) <= 0:
            raise ValueError(
                f"knob {knob.name} is read from a config by a formula, which takes choices of "
                "numbers above 0; list them"
            )
        try:
            expression = Expression.parse(knob.reads or "", _names(), "number")
        except ExpressionError as error:
            raise ValueError(f"knob {knob.name}: reads: {error}") from error
        return cls(knob.name, knob.domain.choices, expression)

    def value(self, config: Config) -> Scalar:
        """The choice that the config was made with, or the nearest to what it has.

        :raises SpecError: where the formula has no value.
        """
        try:
            number = self.expression.number(_values(config))
        except ExpressionError as error:
            raise SpecError(f"{self.name} cannot be read from the config: {error}") from error
        if number <= 0:
            return min(self.choices)
        return min(self.choices, key=lambda choice: abs(math.log(choice / number)))


@cache
def _names() -> Mapping[str, Name]:
    numbers = {int, float, int | None}
    hints = get_type_hints(Config)
    return {name: Name("number") for name in Config.model_fields if hints[name] in numbers}


def _values(config: Config) -> dict[str, Scalar]:
    values = {name: getattr(config, name) for name in _names()} | {"n_kv_head": config.kv_heads}
    return {name: value for name, value in values.items() if value is not None}
