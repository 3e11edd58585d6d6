"""One knob of a ProxyMenu: what values it may take, and why another is refused."""

from __future__ import annotations

import math
from random import Random
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, model_validator

from agent.menu.expressions import MAX_MAGNITUDE, ExpressionError, Kind, kind_of
from autoresearch.values import Frozen, PlainText, PositiveInt, Scalar
from autoresearch.words import shown


def _scalar(value: object) -> object:
    try:
        kind_of(value)
    except ExpressionError as error:
        raise ValueError(str(error)) from error
    return value


def _number(value: object) -> object:
    if isinstance(value, bool | str):
        raise ValueError(f"{shown(value)} is not a number")  # noqa: TRY004 (pydantic's protocol)
    return _scalar(value)


MenuScalar = Annotated[Scalar, BeforeValidator(_scalar)]
MenuNumber = Annotated[int | float, BeforeValidator(_number)]


MAX_WHOLE = 2**53
"""As far as floats, which samplers and charts reckon in, count whole numbers."""
MAX_CHOICES = 256
"""Each is checked, shown to a model and drawn in a report."""


class Knob(Frozen):
    """A field of Config that proposals may set, and its domain.

    An ``int`` or ``float`` knob has inclusive bounds ``low`` and ``high``; an ``int`` knob may
    have ``choices`` instead. A ``choice`` knob has choices, all of one type.
    """

    model_config = ConfigDict(strict=True)

    name: str
    type: Literal["int", "float", "choice"]
    low: MenuNumber | None = None
    high: MenuNumber | None = None
    step: PositiveInt = 1
    """Of an int knob with bounds: values are ``low + k * step``."""
    scale: Literal["linear", "log"] = "linear"
    choices: tuple[MenuScalar, ...] = ()
    default: MenuScalar
    doc: PlainText = ""

    @model_validator(mode="before")
    @classmethod
    def _floats_are_floats(cls, fields: Any) -> Any:
        """So that ``low = 0`` of a float knob reads as 0.0."""
        if isinstance(fields, dict) and fields.get("type") == "float":
            for key in ("low", "high", "default"):
                value = fields.get(key)
                if type(value) is int and abs(value) <= MAX_MAGNITUDE:
                    fields = {**fields, key: float(value)}
        return fields

    @model_validator(mode="after")
    def _domain_makes_sense(self) -> Self:
        problem = self._choices_problem() if self._is_listed else self._bounds_problem()
        if problem is None and (clause := self.why_not(self.default)):
            problem = f"its default cannot stand: {clause}"
        if problem is not None:
            raise ValueError(problem)
        return self

    @property
    def _is_listed(self) -> bool:
        return self.type == "choice" or "choices" in self.model_fields_set

    def _choices_problem(self) -> str | None:  # noqa: PLR0911 (one refusal a line)
        if self.type == "float":
            return "a float knob has low and high, not choices; make its type choice"
        if self.low is not None or self.high is not None:
            return "it has both choices and bounds; remove low and high, or the choices"
        if self.step != 1 or self.scale != "linear":
            return "step and scale belong to bounds; remove them beside choices"
        if len(self.choices) < 2:
            return f"it has {len(self.choices)} choices; give two or more, or make it a constant"
        if len(self.choices) > MAX_CHOICES:
            return (
                f"it has {len(self.choices):,} choices and {MAX_CHOICES} are the most; give the "
                "ones worth trying, or low and high"
            )
        types = {type(choice) for choice in self.choices}
        if len(types) > 1:
            names = " and ".join(sorted(one.__name__ for one in types))
            return f"its choices mix {names}; give all of them one type"
        if self.type == "int" and types != {int}:
            return f"choice {shown(self.choices[0])} is not an int; make its type choice"
        repeated = [c for i, c in enumerate(self.choices) if c in self.choices[:i]]
        if repeated:
            return f"choice {shown(repeated[0])} stands there twice; remove one"
        return None

    def _bounds_problem(self) -> str | None:  # noqa: PLR0911 (one refusal a line)
        low, high = self.low, self.high
        if low is None or high is None:
            missing = "low" if low is None else "high"
            return f"it has no {missing}; add {missing} = …, or choices"
        if self.type == "int" and not (isinstance(low, int) and isinstance(high, int)):
            return f"bounds {low} and {high} of an int knob must be whole; write 4, not 4.0"
        if self.type == "int" and max(abs(low), abs(high)) > MAX_WHOLE:
            return f"bounds {shown(low)} and {shown(high)} are beyond 2**53; bring them nearer to 0"
        if low >= high:
            return f"low {low} is not below high {high}; raise high, or make it a constant"
        if self.scale == "log" and low <= 0:
            return f"a log scale cannot start at low {low}; raise low above 0 or use linear"
        if self.step != 1 and (self.type != "int" or self.scale == "log"):
            return f"step {self.step} is for int knobs on a linear scale; remove it"
        if self.type == "int" and (high - low) % self.step:
            return (
                f"steps of {self.step} from low {low} do not end at high {high}; "
                f"set high to {high - (high - low) % self.step}"
            )
        return None

    @property
    def domain(self) -> str:
        """The domain in words: ``a whole number from 64 to 256 in steps of 32``."""
        if self.choices:
            return f"one of {', '.join(shown(choice) for choice in self.choices)}"
        noun = "a whole number" if self.type == "int" else "a number"
        steps = f" in steps of {self.step}" if self.step != 1 else ""
        log = " (log scale)" if self.scale == "log" else ""
        return f"{noun} from {shown(self.low)} to {shown(self.high)}{steps}{log}"

    @property
    def ends(self) -> tuple[Scalar, ...]:
        """Every choice, or the two bounds."""
        return self.choices or tuple(end for end in (self.low, self.high) if end is not None)

    @property
    def kind(self) -> Kind:
        """What it is in a constraint."""
        return kind_of(self.default)

    def why_not(self, value: object) -> str | None:
        """One clause why a value is outside the domain, or None.

        The type is taken literally: no bool, string or 4.0 for an int, no string for a number.
        Only an int is also a float.
        """
        clause = f"{self.name} = {shown(value)} is not {self.domain}"
        if self.choices:
            same_type = type(value) is type(self.choices[0]) or (
                type(value) is int and isinstance(self.choices[0], float)
            )
            return None if same_type and value in self.choices else clause
        allowed_types = (int,) if self.type == "int" else (int, float)
        if type(value) not in allowed_types:
            return f"{clause} (it is {_type_word(value)})"
        assert isinstance(value, int | float)
        assert self.low is not None
        assert self.high is not None
        # A NaN compares false with everything, so this refuses it too.
        if not self.low <= value <= self.high:
            return clause
        if self.type == "int" and (value - self.low) % self.step:
            return clause
        return None

    def normal(self, value: Scalar) -> Scalar:
        """A value of this domain in its one form, so that equal values hash equally."""
        if self.type == "float" and isinstance(value, int | float):
            return float(value) + 0.0  # -0.0 becomes 0.0
        if self.type == "int" and isinstance(value, float):
            return int(value)
        return value

    def draw(self, rng: Random) -> Scalar:
        """A value drawn uniformly from the domain, on its scale."""
        if self.choices:
            return rng.choice(self.choices)
        assert self.low is not None
        assert self.high is not None
        if self.scale == "log":
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
            value = min(max(value, self.low), self.high)
            return round(value) if self.type == "int" else value
        if self.type == "int":
            return rng.randrange(int(self.low), int(self.high) + 1, self.step)
        return rng.uniform(self.low, self.high)


def _type_word(value: object) -> str:
    words = {bool: "a boolean", str: "a string", float: "a float", int: "an int"}
    return words.get(type(value), f"a {type(value).__name__}")
