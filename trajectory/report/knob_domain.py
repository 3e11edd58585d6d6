"""A knob as a report sees it: where it may go, cut into values or bins that can be counted."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from autoresearch.values import Scalar
from trajectory.report.text import label

MAX_VALUES = 8
"""Whole numbers from low to high are shown one by one up to so many, else in bins."""
BINS = 6


def value_text(value: Scalar) -> str:
    """A knob's value in a few characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.3g}" if isinstance(value, float) else label(str(value)) or '""'


@dataclass(frozen=True)
class KnobDomain:
    """A knob of the campaign's menu. It has choices, or inclusive bounds."""

    name: str
    default: Scalar | None
    choices: tuple[Scalar, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: int | None = None
    """Of a whole-number knob with bounds; None for a real one."""
    is_log: bool = False
    doc: str = ""

    @cached_property
    def values(self) -> tuple[Scalar, ...]:
        """All values there are, in order; empty where they are too many to be shown apart."""
        if self.choices:
            return self.choices
        if self.step is None or (self.high - self.low) / self.step >= MAX_VALUES:
            return ()
        return tuple(range(int(self.low), int(self.high) + 1, self.step))

    @cached_property
    def edges(self) -> tuple[float, ...]:
        """Of BINS bins of equal width on the knob's scale; empty where values are shown apart."""
        if self.values:
            return ()
        if self.is_log:
            ratio = math.log(self.high / self.low)
            inner = [self.low * math.exp(ratio * i / BINS) for i in range(1, BINS)]
        else:
            inner = [self.low + (self.high - self.low) * i / BINS for i in range(1, BINS)]
        return (self.low, *inner, self.high)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Of the values, or of the bins."""
        if self.values:
            return tuple(value_text(value) for value in self.values)
        return tuple(self._bin_text(i) for i in range(BINS))

    def _bin_text(self, i: int) -> str:
        low, high = self.edges[i], self.edges[i + 1]
        if self.step is None:
            return f"{_short(low)} – {_short(high)}"
        last = self.high if i == BINS - 1 else math.ceil(high) - 1
        return f"{math.ceil(low)} – {last:.0f}"

    def index(self, value: Scalar | None) -> int | None:
        """Which value or bin this is; None outside the domain."""
        if value is None:
            return None
        if self.values:
            # A bool equals 0 or 1, and must not pass for them.
            found = (i for i, v in enumerate(self.values) if v == value and _alike(v, value))
            return next(found, None)
        if isinstance(value, str | bool) or not self.low <= value <= self.high:
            return None
        return min(bisect_right(self.edges, value), BINS) - 1


def _short(edge: float) -> str:
    """Two digits; ``2.6e-4`` where zeros would be longer."""
    if 0 < abs(edge) < 1e-3:
        mantissa, exponent = f"{edge:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    return f"{edge:.2g}"


def _alike(one: Scalar, other: Scalar) -> bool:
    return isinstance(one, bool) == isinstance(other, bool)
