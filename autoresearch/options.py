"""How a command asks for a value, said where the value is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AsOption:
    """What a field's type, bounds, default and description do not say of its option.

    It stands in the field's annotation. Only a field with a description has an option.
    """

    flag: str | None = None
    """None: the field's name."""
    bounds: tuple[float | None, float | None] | None = None
    """The least and the most that a command takes; None: what the field takes."""
    read: Callable[[str], Any] | None = None
    """Makes a value of a person's text, and raises ValueError on another; None: a value of a plain
    type is read as that, any other by its own validator."""
