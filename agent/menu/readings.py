"""Read ratios from a config that has no field for them.

A menu that searches ratios (the width of a head, d_ff to d_model) has knobs without a field in
Config. ``[tied]`` formulas turn them into fields. A knob's ``reads`` is the inverse formula, over
the config's fields in the language of :mod:`agent.menu.expressions`. ``n_kv_head`` is the number of
KV heads in it, even if the config does not set it. Fields are whole, so the formula may slightly
miss the value that made the config: the nearest choice, by ratio, is used.
:meth:`~agent.menu.proxy_menu.ProxyMenu.apply` refuses a config whose ratios read back differently.
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
    """Computes one knob's value from a config."""

    name: str
    choices: tuple[int | float, ...]
    """Choices, all above zero."""
    expression: Expression

    @classmethod
    def of(cls, knob: Knob) -> Self:
        """Return the reading that the knob's ``reads`` describes.

        :raises ValueError: if it cannot be parsed, or the knob is not a list of numbers above zero.
        """
        if not isinstance(knob.domain, Ladder) or min(knob.domain.choices) <= 0:
            raise ValueError(
                f"knob {knob.name} is read from a config by a formula, which needs choices of "
                "numbers above 0; list them"
            )
        try:
            expression = Expression.parse(knob.reads or "", _names(), "number")
        except ExpressionError as error:
            raise ValueError(f"knob {knob.name}: reads: {error}") from error
        return cls(knob.name, knob.domain.choices, expression)

    def value(self, config: Config) -> Scalar:
        """Return the choice that made the config, or the nearest one.

        :raises SpecError: if the formula has no value.
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
