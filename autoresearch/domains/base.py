"""What every kind of domain must say of itself, and what all of them have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError

from autoresearch.values import Frozen, Scalar, explain
from autoresearch.words import json_text, toml_text

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

MAX_CHOICES = 256
"""A domain lists at most so many values: each is checked, shown to a model and drawn in a report.
"""


@dataclass(frozen=True, slots=True)
class Bin:
    """A stretch of numbers that a report counts together.

    Bins of real numbers share their ends, and a number there belongs to the later of the two.
    """

    low: float
    high: float

    def holds(self, value: Scalar) -> bool:
        """Whether a number lies in it; a string or a boolean never does."""
        return not isinstance(value, str | bool) and self.low <= value <= self.high


class Domain(Frozen, ABC):
    """The values one knob may take.

    A domain that was constructed need not be fit for a menu: a report makes one of whatever values
    another tool has tried. :func:`autoresearch.domains.kinds.read_domain`, from which a menu's
    domains come, asks :meth:`problem`.
    """

    model_config = ConfigDict(strict=True)

    # --- as a menu's table ----------------------------------------------------------------------

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Domain:
        """The domain that the keys of a menu's table describe, ``type`` aside.

        :raises ValueError: one clause that names the key, the value seen and the mend.
        """
        try:
            return cls.model_validate({key: table[key] for key in table if key != "type"})
        except ValidationError as error:
            raise ValueError(explain(error)) from error

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """The keys and values that :meth:`read` makes this domain of, without those that say what
        would be so anyway."""

    @abstractmethod
    def problem(self) -> str | None:
        """One clause why no menu may have this domain, or None."""

    def toml_lines(self) -> Iterator[str]:
        """:meth:`table` as lines of TOML."""
        return (f"{key} = {toml_text(value)}" for key, value in self.table().items())

    # --- its values -----------------------------------------------------------------------------

    @abstractmethod
    def __str__(self) -> str:
        """The domain in words: ``a whole number from 64 to 256 in steps of 32``."""

    @property
    @abstractmethod
    def ends(self) -> tuple[Scalar, ...]:
        """The values that stand for the domain where all of it must be fit: every choice, or the
        two bounds."""

    @abstractmethod
    def contains(self, value: object) -> bool:
        """Whether a knob may take this value.

        The type is taken literally: no bool, string or 4.0 for an int, no string for a number.
        Only an int is also a float.
        """

    def why_not(self, value: object) -> str | None:
        """One clause why a value is outside the domain, or None."""
        return None if self.contains(value) else f"{json_text(value)} is not {self}"

    def coerced(self, value: Scalar) -> Scalar:
        """Return the value as a type that the domain contains, where nothing is lost: ``"0.002"``
        as 0.002, 3.0 as 3, ``"true"`` as true; any other as it is."""
        forms: list[Scalar] = [value]
        if isinstance(value, str) and value.isascii() and "_" not in value:
            forms += [truth for truth in (True, False) if str(truth) == value.strip().title()]
            for number in (int, float):
                with suppress(ValueError):
                    forms.append(number(value))
        forms += [int(form) for form in forms if isinstance(form, float) and form.is_integer()]
        return next((form for form in forms if self.contains(form)), value)

    def normal(self, value: Scalar) -> Scalar:
        """A value of this domain in its one form, so that equal values hash equally."""
        return value

    # --- to choose among them -------------------------------------------------------------------

    @abstractmethod
    def at(self, share: float) -> Scalar:
        """The value at a share of the domain, from 0 up to but not including 1, on its scale."""

    @abstractmethod
    def draw(self, rng: Random) -> Scalar:
        """A value drawn uniformly from the domain, on its scale."""

    def rounded(self, value: Scalar) -> Scalar:
        """A drawn value as it is proposed: short enough to read, and still in the domain."""
        return value

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """The schema that a language model's value is held to: what the domain contains."""

    @abstractmethod
    def distribution(self) -> BaseDistribution:
        """Optuna's distribution over the knob's own values."""

    # A search may do better with another parameter than the value itself.

    def search_distribution(self) -> BaseDistribution:
        """Optuna's distribution over the parameter that a search sets in place of the value."""
        return self.distribution()

    def parameter(self, value: Scalar) -> Scalar | None:
        """The search's parameter for a value; None for one outside the domain."""
        return value if self.contains(value) else None

    def value(self, parameter: Scalar) -> Scalar:
        """The value to propose for a parameter that a search has set."""
        return self.rounded(parameter)

    # --- as a report counts them ----------------------------------------------------------------

    @property
    @abstractmethod
    def cells(self) -> tuple[Scalar | Bin, ...]:
        """The values in order where they are few enough to be shown apart, else bins of them."""

    def place(self, value: Scalar | None) -> int | None:
        """The number of the cell that a value belongs to; None where it lies outside the domain."""
        if value is None:
            return None
        places = reversed(range(len(self.cells)))
        return next((place for place in places if _is_in(value, self.cells[place])), None)


def _is_in(value: Scalar, cell: Scalar | Bin) -> bool:
    if isinstance(cell, Bin):
        return cell.holds(value)
    # A bool equals 0 or 1, and must not pass for them.
    return cell == value and isinstance(cell, bool) == isinstance(value, bool)
