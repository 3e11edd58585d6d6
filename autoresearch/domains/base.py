"""Define the interface of all kinds of domain, and what they share."""

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
"""Most values that a domain may list: each is checked, shown to a model and drawn in a report."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Range of numbers that a report counts together.

    Neighboring bins of real numbers share a bound; a number on it belongs to the later bin.
    """

    low: float
    high: float

    def holds(self, value: Scalar) -> bool:
        """Return whether a number lies in the bin; a string or a boolean never does."""
        return not isinstance(value, str | bool) and self.low <= value <= self.high


class Domain(Frozen, ABC):
    """The values one knob may take.

    A domain may be unfit for a menu: a report builds one from whatever values another tool tried.
    :func:`autoresearch.domains.read_domain`, which reads a menu's domains, asks
    :meth:`problem`.
    """

    model_config = ConfigDict(strict=True)

    # --- as a menu's table ----------------------------------------------------------------------

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Domain:
        """Return the domain that the keys of a menu's table describe, ``type`` excluded.

        :raises ValueError: one clause that names the key, the value seen and the fix.
        """
        try:
            return cls.model_validate({key: table[key] for key in table if key != "type"})
        except ValidationError as error:
            raise ValueError(explain(error)) from error

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """Return the keys and values that :meth:`read` builds this domain from, defaults
        omitted."""

    @abstractmethod
    def problem(self) -> str | None:
        """Return one clause why no menu may have this domain, or None."""

    def toml_lines(self) -> Iterator[str]:
        """Return :meth:`table` as lines of TOML."""
        return (f"{key} = {toml_text(value)}" for key, value in self.table().items())

    # --- its values -----------------------------------------------------------------------------

    @abstractmethod
    def __str__(self) -> str:
        """Return the domain in words: ``a whole number from 64 to 256 in steps of 32``."""

    @property
    @abstractmethod
    def ends(self) -> tuple[Scalar, ...]:
        """The values to check when the whole domain must be fit: every choice, or the two
        bounds."""

    @abstractmethod
    def contains(self, value: object) -> bool:
        """Return whether a knob may take this value.

        The type is taken literally: no bool, string or 4.0 for an int, no string for a number.
        Only an int is also a float.
        """

    def why_not(self, value: object) -> str | None:
        """Return one clause why a value is outside the domain, or None."""
        return None if self.contains(value) else f"{json_text(value)} is not {self}"

    def coerced(self, value: Scalar) -> Scalar:
        """Return the value as a type that the domain contains if that loses nothing. ``"0.002"``
        becomes 0.002, 3.0 becomes 3, ``"true"`` becomes true; other values stay unchanged."""
        forms: list[Scalar] = [value]
        if isinstance(value, str) and value.isascii() and "_" not in value:
            forms += [truth for truth in (True, False) if str(truth) == value.strip().title()]
            for number in (int, float):
                with suppress(ValueError):
                    forms.append(number(value))
        forms += [int(form) for form in forms if isinstance(form, float) and form.is_integer()]
        return next((form for form in forms if self.contains(form)), value)

    def normal(self, value: Scalar) -> Scalar:
        """Return the canonical form of a value of this domain, so that equal values hash
        equally."""
        return value

    @abstractmethod
    def joined(self, other: Domain) -> Domain:
        """Return a domain of this kind that contains the values of both.

        :raises ValueError: one clause, if there is none.
        """

    # --- to choose among them -------------------------------------------------------------------

    @abstractmethod
    def at(self, share: float) -> Scalar:
        """Return the value at a share of the domain, in [0, 1), on its scale."""

    @abstractmethod
    def draw(self, rng: Random) -> Scalar:
        """Draw a value uniformly from the domain, on its scale."""

    def rounded(self, value: Scalar) -> Scalar:
        """Return a drawn value as it is proposed: short enough to read, and still in the domain."""
        return value

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema that constrains a language model's value."""

    @abstractmethod
    def distribution(self) -> BaseDistribution:
        """Return Optuna's distribution over the knob's own values."""

    # --- as a report counts them ----------------------------------------------------------------

    @property
    @abstractmethod
    def cells(self) -> tuple[Scalar | Bin, ...]:
        """The values in order if they are few enough to show apart, else bins of them."""

    def place(self, value: Scalar | None) -> int | None:
        """Return the index of a value's cell; None if the value lies outside the domain."""
        if value is None:
            return None
        for place, cell in reversed([*enumerate(self.cells)]):
            if isinstance(cell, Bin):
                is_in = cell.holds(value)
            else:
                # A bool equals 0 or 1 in Python, and must not match those cells.
                is_in = cell == value and isinstance(cell, bool) == isinstance(value, bool)
            if is_in:
                return place
        return None
