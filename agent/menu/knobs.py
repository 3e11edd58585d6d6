"""Define a menu's knobs, and its formulas over them: constraints, tied fields and readings.

A knob is a field of Config, or a ratio that determines fields, such as the width of a head. A ratio
is not a field, so its table states under ``reads`` how to compute it from a config: the inverse
formula, over the config's fields. ``n_kv_head`` is the number of KV heads in it, even if the config
does not set it. Fields are whole, so the formula may slightly miss the value that made the config:
the nearest choice, by ratio, is used. :meth:`~agent.menu.proxy_menu.ProxyMenu.apply` refuses a
config whose ratios read back differently.

``[tied]`` holds formulas of fields that follow the knobs, so that changing a knob moves them along.
With ``n_head = "d_model / 128"`` every head is 128 wide whatever the width. A formula may also use
fields tied before it. A proposal cannot set a tied field, so every config of the menu keeps the
shape that the formulas describe. In a menu that searches ratios (the width of a head, d_ff to
d_model), ``[tied]`` turns them into fields.

A knob with ``when`` counts only where that condition over other knobs and constants holds, such as
Muon's learning rate with ``optimizer == "muon"``. Elsewhere the config has its default, so two
configs that differ only there are one.

All formulas are in the language of :mod:`agent.menu.expressions`. A constraint is a condition that
every config must meet.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Self, get_type_hints

from pydantic import BeforeValidator, ConfigDict, InstanceOf, model_serializer, model_validator

from agent.menu.expressions import Expression, ExpressionError, kind_of
from autoresearch.domains import domain_keys, read_domain
from autoresearch.domains.base import Domain
from autoresearch.domains.choices import OrderedChoices
from autoresearch.errors import SpecError
from autoresearch.values import Frozen, PlainText, Scalar
from autoresearch.words import json_text
from trainer.schema import Config


def _scalar(value: object) -> object:
    kind_of(value)
    return value


MenuScalar = Annotated[Scalar, BeforeValidator(_scalar)]

_BOUNDS = {"low": None, "high": None, "step": 1, "scale": "linear"}
_UNSAID: Mapping[str, Any] = {**_BOUNDS, "choices": []}
"""Values in a knob's JSON under keys that its domain does not use."""
_BESIDE_THE_DOMAIN = ("default", "reads", "when", "doc")


class Knob(Frozen):
    """A value that proposals may set, and its domain."""

    model_config = ConfigDict(strict=True)

    name: str
    domain: InstanceOf[Domain]
    default: MenuScalar
    reads: PlainText | None = None
    """For a knob that is not a field of Config: formula of the knob's value over a config's fields;
    see :class:`Reading`."""
    when: PlainText | None = None
    """Condition over other knobs and constants under which the knob counts; None: always."""
    doc: PlainText = ""

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys that a knob's table in a menu may have."""
        return [*domain_keys(), *_BESIDE_THE_DOMAIN]

    @classmethod
    def read(cls, name: str, table: Mapping[str, Any]) -> Self:
        """Return the knob that a menu's table describes.

        :raises ValueError: one clause that names the key, the value seen and the fix; pydantic's
            own error for a default or a doc that is missing or of the wrong type.
        """
        given = {key: table[key] for key in _BESIDE_THE_DOMAIN if key in table}
        described = {key: value for key, value in table.items() if key not in given}
        for key in (key for key in table if key not in {"type", "doc", "reads", "when"}):
            _check_scalars(key, table[key])
        domain = read_domain(described)
        if type(given.get("default")) is int:
            # the default 0 of a float knob becomes 0.0
            given["default"] = domain.normal(given["default"])
        return cls(name=name, domain=domain, **given)

    @model_validator(mode="after")
    def _default_stands(self) -> Self:
        if clause := self.why_not(self.default):
            raise ValueError(f"its default is invalid: {clause}")
        return self

    @model_serializer
    def _as_one_table(self) -> dict[str, Any]:
        described = {"type": "", **_UNSAID, **self.domain.table()}
        reads = {} if self.reads is None else {"reads": self.reads}
        when = {} if self.when is None else {"when": self.when}
        said = {"default": self.default, **reads, **when, "doc": self.doc}
        return {"name": self.name, **described, **said}

    def why_not(self, value: object) -> str | None:
        """Return one clause why the knob may not take a value, or None."""
        clause = self.domain.why_not(value)
        return clause and f"{self.name} = {clause}"


def _check_scalars(key: str, value: object) -> None:
    """Refuse a scalar, or one in a list, that no constraint could use."""
    items = (
        {f"{key}.{i}": one for i, one in enumerate(value)} if type(value) is list else {key: value}
    )
    for place, item in items.items():
        try:
            kind_of(item)
        except ExpressionError as error:
            raise ValueError(f"{place}: {error}") from error


BUDGET_STEPS = "budget_steps"
"""Name of the budget in constraints: optimizer steps, unknown for a budget in seconds."""


class Constraint(Frozen):
    """A condition over knobs, tied fields, constants and ``budget_steps`` that every config must
    meet."""

    model_config = ConfigDict(strict=True)

    expr: str
    doc: PlainText = ""


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
        names: Collection[str],
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
        expression = Expression.parse(source, {*names, *earlier})
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
            seen = self.expression.seen(values)
            raise SpecError(f"{self} has no value{seen}: {error}") from error
        if not self.of_config:
            return int(number) if number == int(number) else float(number)
        if _hint(self.name) is float:
            return float(number)
        if number != int(number):
            seen = self.expression.seen(values)
            raise SpecError(f"{self} gives {json_text(number)}{seen}, not a whole one")
        return int(number)


@cache
def _hint(name: str) -> object:
    """Return the field's type without its bounds."""
    return get_type_hints(Config)[name]


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
        if not isinstance(knob.domain, OrderedChoices) or min(knob.domain.choices) <= 0:
            raise ValueError(
                f"knob {knob.name} is read from a config by a formula, which needs choices of "
                "numbers above 0; list them"
            )
        try:
            expression = Expression.parse(knob.reads or "", _names())
        except ExpressionError as error:
            raise ValueError(f"knob {knob.name}: reads: {error}") from error
        return cls(knob.name, knob.domain.choices, expression)

    def value(self, config: Config) -> Scalar:
        """Return the choice that made the config, or the nearest one.

        :raises SpecError: if the formula has no value.
        """
        fields = {name: getattr(config, name) for name in _names()} | {"n_kv_head": config.kv_heads}
        values = {name: value for name, value in fields.items() if value is not None}
        try:
            number = self.expression.number(values)
        except ExpressionError as error:
            raise SpecError(f"{self.name} cannot be read from the config: {error}") from error
        if number <= 0:
            return min(self.choices)
        return min(self.choices, key=lambda choice: abs(math.log(choice / number)))


@cache
def _names() -> list[str]:
    return [name for name in Config.model_fields if _hint(name) in {int, float, int | None}]
