"""Define domains that list their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from autoresearch.domains.base import MAX_CHOICES, Bin, Domain
from autoresearch.values import Scalar
from autoresearch.words import first_fault, json_text

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


class Choices(Domain):
    """Values without an order: words, booleans, or another tool's mixture."""

    type: Literal["int", "choice"] = "choice"
    """Name in the menu: a list of whole numbers may be called ``int``."""
    choices: tuple[Scalar, ...]

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Domain:
        choices = table.get("choices", [])
        has_bounds = bool({"low", "high"} & table.keys())
        has_steps = (table.get("step", 1), table.get("scale", "linear")) != (1, "linear")
        clause = first_fault(
            (
                not isinstance(choices, list | tuple),
                f"choices is {json_text(choices)}; write it as a list [a, b]",
            ),
            (
                has_bounds or has_steps,
                "it has both choices and bounds; remove low, high, step and scale, or the choices",
            ),
        )
        if clause:
            raise ValueError(clause)
        kind = Choices if any(isinstance(one, bool | str) for one in choices) else OrderedChoices
        return kind(type=table["type"], choices=tuple(choices))

    def table(self) -> dict[str, Any]:
        return {"type": self.type, "choices": list(self.choices)}

    def problem(self) -> str | None:
        count, types = len(self.choices), {type(choice) for choice in self.choices}
        names = " and ".join(sorted(one.__name__ for one in types))
        counted = Counter(self.choices[:MAX_CHOICES])
        return first_fault(
            (
                count < 2,
                f"it has {count} choices; give two or more, or make it a constant",
            ),
            (
                count > MAX_CHOICES,
                f"it has {count:,} choices and {MAX_CHOICES} are the most; give the ones worth "
                "trying, or low and high",
            ),
            (len(types) > 1, f"its choices mix {names}; give all of them one type"),
            (
                self.type == "int" and types != {int},
                f"choice {json_text(next(iter(self.choices), 0))} is not an int; make its type "
                "choice",
            ),
            *(
                (times > 1, f"choice {json_text(choice)} is listed twice; remove one")
                for choice, times in counted.items()
            ),
        )

    def __str__(self) -> str:
        return f"one of {', '.join(json_text(choice) for choice in self.choices)}"

    @property
    def ends(self) -> tuple[Scalar, ...]:
        return self.choices

    def contains(self, value: object) -> bool:
        return any(type(value) is type(one) and value == one for one in self.choices)

    def joined(self, other: Domain) -> Domain:
        if type(other) is not type(self):
            raise ValueError(f"it was {self}, and {other} cannot join it; give choices like these")
        assert isinstance(other, Choices)
        return type(self)(
            type=self.type, choices=tuple(dict.fromkeys((*self.choices, *other.choices)))
        )

    def at(self, share: float) -> Scalar:
        return self.choices[min(int(share * len(self.choices)), len(self.choices) - 1)]

    def draw(self, rng: Random) -> Scalar:
        return rng.choice(self.choices)

    def json_schema(self) -> dict[str, Any]:
        return {"type": _JSON_TYPES[type(self.choices[0])], "enum": list(self.choices)}

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution  # noqa: PLC0415 (slow to load)

        return CategoricalDistribution(list(self.choices))

    @cached_property
    def cells(self) -> tuple[Scalar | Bin, ...]:
        return self.choices


class OrderedChoices(Choices):
    """Numbers, which have an order: batch sizes 2, 4 and 8 are neighbors."""

    choices: tuple[int | float, ...]

    def contains(self, value: object) -> bool:
        if type(value) not in (int, float):
            return False
        # Only an int is also a float.
        return any(value == one and type(value) in (int, type(one)) for one in self.choices)

    def normal(self, value: Scalar) -> Scalar:
        return int(value) if self.type == "int" and isinstance(value, float) else value
