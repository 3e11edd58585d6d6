"""Define one knob of a ProxyMenu: its domain and its default.

A knob is a field of Config, or a ratio that determines fields, such as the width of a head. A ratio
is not a field, so its table states under ``reads`` how to compute it from a config.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, InstanceOf, model_serializer, model_validator

from agent.menu.expressions import ExpressionError, kind_of
from autoresearch.domains import domain_keys, read_domain
from autoresearch.domains.base import Domain
from autoresearch.values import Frozen, PlainText, Scalar


def _scalar(value: object) -> object:
    kind_of(value)
    return value


MenuScalar = Annotated[Scalar, BeforeValidator(_scalar)]

_BOUNDS = {"low": None, "high": None, "step": 1, "scale": "linear"}
_UNSAID: Mapping[str, Any] = {**_BOUNDS, "choices": []}
"""Values in a knob's JSON under keys that its domain does not use."""
_BESIDE_THE_DOMAIN = ("default", "reads", "doc")


class Knob(Frozen):
    """A value that proposals may set, and its domain."""

    model_config = ConfigDict(strict=True)

    name: str
    domain: InstanceOf[Domain]
    default: MenuScalar
    reads: PlainText | None = None
    """For a knob that is not a field of Config: formula of the knob's value over a config's fields;
    see :mod:`agent.menu.formulas`."""
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
        for key in (key for key in table if key not in {"type", "doc", "reads"}):
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
        return {"name": self.name, **described, "default": self.default, **reads, "doc": self.doc}

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
