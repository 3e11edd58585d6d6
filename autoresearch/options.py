"""Describe command-line options where their fields are declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AsOption:
    """Facts about an option beyond its field's type, bounds, default and description.

    It is part of the field's annotation. Only a field with a description has an option.
    """

    flag: str | None = None
    """None: the field's name."""
    bounds: tuple[float | None, float | None] | None = None
    """The least and the most that a command accepts; None: the field's bounds."""
    read: Callable[[str], Any] | None = None
    """Converts a person's text and raises ValueError if it cannot. None: plain types are parsed as
    such, others by their own validator."""
