"""Define domains between two bounds, of whole or real numbers, on a linear or log scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from autoresearch.domains.base import MAX_CHOICES, Bin, Domain
from autoresearch.domains.choices import Choices
from autoresearch.values import PositiveInt, Scalar
from autoresearch.words import first_fault, json_text

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Scale: TypeAlias = Literal["linear", "log"]

MAX_WHOLE = 2**53
"""Largest magnitude up to which floats, which samplers and charts use, count whole numbers."""
MAX_LISTED = 64
"""Most values of a stepped range that a schema lists one by one."""
MAX_VALUES = 8
"""Most whole numbers that a report shows one by one; more are shown in bins."""
BINS = 6
SIGNIFICANT_DIGITS = 4
"""Digits of a proposed real number: finer than any effect of a knob, and short enough to read."""


class Range(Domain):
    """Inclusive bounds and a scale, which whole and real ranges share."""

    WORD: ClassVar[str]
    """Name of the kind in a menu."""
    NOUN: ClassVar[str]
    TYPES: ClassVar[tuple[type, ...]]
    """Exact types whose values it may contain."""

    low: float
    high: float
    step: PositiveInt = 1
    """Values are ``low + k * step``; always 1 except for whole numbers on a linear scale."""
    scale: Scale = "linear"

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Domain:
        missing = next((end for end in ("low", "high") if end not in table), None)
        clause = first_fault(
            (
                "choices" in table,
                f"a {cls.WORD} knob has low and high, not choices; make its type choice",
            ),
            (missing, f"it has no {missing}; add {missing} = …, or choices"),
        )
        if clause:
            raise ValueError(clause)
        return super().read(table)

    def table(self) -> dict[str, Any]:
        return {"type": self.WORD, **self.model_dump(exclude_defaults=True)}

    def problem(self) -> str | None:
        return first_fault(
            (
                self.low >= self.high,
                f"low {self.low} is not below high {self.high}; raise high, or make it a constant",
            ),
            (
                self.scale == "log" and self.low <= 0,
                f"a log scale cannot start at low {self.low}; raise low above 0 or use linear",
            ),
            (
                self.step != 1 and (self.WORD, self.scale) != ("int", "linear"),
                f"step {self.step} is for int knobs on a linear scale; remove it",
            ),
        )

    def __str__(self) -> str:
        steps = f" in steps of {self.step}" if self.step != 1 else ""
        log = " (log scale)" if self.scale == "log" else ""
        return f"{self.NOUN} from {json_text(self.low)} to {json_text(self.high)}{steps}{log}"

    @property
    def ends(self) -> tuple[Scalar, ...]:
        return (self.low, self.high)

    def contains(self, value: object) -> bool:
        # A NaN compares false with everything, so it is refused too.
        return type(value) in self.TYPES and self.low <= value <= self.high  # type: ignore[operator]

    def why_not(self, value: object) -> str | None:
        clause = super().why_not(value)
        if clause is None or type(value) in self.TYPES:
            return clause
        words = {bool: "a boolean", str: "a string", float: "a float", int: "an int"}
        return f"{clause} (it is {words.get(type(value), f'a {type(value).__name__}')})"

    def joined(self, other: Domain) -> Domain:
        if isinstance(other, Choices) and all(map(self.contains, other.choices)):
            return self
        if not isinstance(other, Range) or type(other) is not type(self):
            raise ValueError(f"it was {self}, and {other} cannot join it; give low and high")
        step = math.gcd(self.step, other.step, int(abs(self.low - other.low)))
        low, high = min(self.low, other.low), max(self.high, other.high)
        return self.model_copy(
            update={"low": low, "high": high, "step": step if self.WORD == "int" else 1}
        )

    def _between(self, share: float) -> float:
        """Return the real number at a share of the range, on its scale."""
        if self.scale == "log":
            low, high = math.log(self.low), math.log(self.high)
            value = math.exp(low + (high - low) * share)
        else:
            value = self.low + (self.high - self.low) * share
        return min(max(value, self.low), self.high)

    def _inner_edges(self) -> list[float]:
        """Return the bounds between BINS bins of equal width on the scale."""
        low, high = float(self.low), float(self.high)
        if self.scale == "linear":
            return [low + (high - low) * i / BINS for i in range(1, BINS)]
        ratio = math.log(high / low)
        return [low * math.exp(ratio * i / BINS) for i in range(1, BINS)]


class WholeRange(Range):
    """Whole numbers from ``low`` to ``high`` in steps; on a log scale, each of them."""

    WORD = "int"
    NOUN = "a whole number"
    TYPES = (int,)

    low: int
    high: int

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Domain:
        return Choices.read(table) if "choices" in table else super().read(table)

    def problem(self) -> str | None:
        beyond = (self.high - self.low) % self.step
        problem = super().problem()
        return first_fault(
            (
                max(abs(self.low), abs(self.high)) > MAX_WHOLE,
                f"bounds {json_text(self.low)} and {json_text(self.high)} are beyond 2**53; bring "
                "them nearer to 0",
            ),
            (problem, problem or ""),
            (
                beyond,
                f"steps of {self.step} from low {self.low} do not end at high {self.high}; set "
                f"high to {json_text(self.high - beyond)}",
            ),
        )

    @property
    def _values(self) -> range:
        return range(self.low, self.high + 1, self.step)

    def contains(self, value: object) -> bool:
        return type(value) is int and value in self._values

    def normal(self, value: Scalar) -> Scalar:
        return int(value) if isinstance(value, float) else value

    def at(self, share: float) -> Scalar:
        if self.scale == "log":
            return round(self._between(share))
        return self._values[min(int(share * len(self._values)), len(self._values) - 1)]

    def draw(self, rng: Random) -> Scalar:
        if self.scale == "log":
            return self.at(rng.random())
        return rng.randrange(self.low, self.high + 1, self.step)

    def json_schema(self) -> dict[str, Any]:
        """See :meth:`Domain.json_schema`.

        llama.cpp's server honors an enumeration and no multiples, which count from zero in a
        schema. Where a list would be too long for any server, only the rails check the values.
        """
        schema: dict[str, Any] = {"type": "integer", "minimum": self.low, "maximum": self.high}
        if self.step == 1:
            return schema
        count, from_zero = len(self._values), self.low % self.step == 0
        if count <= MAX_LISTED or (count <= MAX_CHOICES and not from_zero):
            return schema | {"enum": list(self._values)}
        return schema | {"multipleOf": self.step} if from_zero else schema

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import IntDistribution  # noqa: PLC0415 (slow to load)

        return IntDistribution(self.low, self.high, self.scale == "log", self.step)

    @cached_property
    def cells(self) -> tuple[Scalar | Bin, ...]:
        if (self.high - self.low) / self.step < MAX_VALUES:
            return tuple(self._values)
        firsts = [self.low, *(math.ceil(edge) for edge in self._inner_edges())]
        lasts = [*(first - 1 for first in firsts[1:]), self.high]
        # At the low end of a log scale, a bin may be too narrow for any whole number.
        return tuple(Bin(a, b) for a, b in zip(firsts, lasts, strict=True) if a <= b)


class RealRange(Range):
    """Real numbers from ``low`` to ``high``."""

    WORD = "float"
    NOUN = "a number"
    TYPES = (int, float)

    def normal(self, value: Scalar) -> Scalar:
        return float(value) + 0.0 if isinstance(value, int | float) else value  # -0.0 becomes 0.0

    def at(self, share: float) -> Scalar:
        return self._between(share)

    def draw(self, rng: Random) -> Scalar:
        return self.at(rng.random())

    def rounded(self, value: Scalar) -> Scalar:
        if not isinstance(value, float):
            return value
        return min(max(float(f"{value:.{SIGNIFICANT_DIGITS}g}"), self.low), self.high)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.low, "maximum": self.high}

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import FloatDistribution  # noqa: PLC0415 (slow to load)

        return FloatDistribution(self.low, self.high, self.scale == "log")

    @cached_property
    def cells(self) -> tuple[Scalar | Bin, ...]:
        edges = [self.low, *self._inner_edges(), self.high]
        return tuple(Bin(low, high) for low, high in pairwise(edges))
