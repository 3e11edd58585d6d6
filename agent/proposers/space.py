"""The menu as Optuna sees it: one distribution per knob, and the way there and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from agent.menu.files import ProxyMenu
from agent.menu.knob import Knob
from autoresearch.values import Scalar

SIGNIFICANT_DIGITS = 4
"""Of a drawn float: finer than any effect of a knob, and short enough to read."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One knob's values and Optuna's parameter for them.

    Numeric choices are an integer parameter, the place among them in order: batch sizes 2, 4, 8
    are neighbours, and a density over unordered categories would not know it.
    """

    knob: Knob
    distribution: BaseDistribution
    ladder: tuple[Scalar, ...] = ()
    """The choices in ascending order, where the parameter is a place among them."""

    @classmethod
    def of(cls, knob: Knob) -> Axis:
        if knob.choices:
            if any(isinstance(choice, bool | str) for choice in knob.choices):
                return cls(knob, CategoricalDistribution(list(knob.choices)))
            ladder = tuple(sorted(knob.choices))
            return cls(knob, IntDistribution(0, len(ladder) - 1), ladder)
        assert knob.low is not None
        assert knob.high is not None
        log = knob.scale == "log"
        if knob.type == "int":
            return cls(knob, IntDistribution(int(knob.low), int(knob.high), log, knob.step))
        return cls(knob, FloatDistribution(knob.low, knob.high, log))

    def parameter(self, value: Scalar) -> Scalar | None:
        """Optuna's parameter for a value of the knob; None for one outside its domain."""
        if self.knob.why_not(value) is not None:
            return None
        return self.ladder.index(value) if self.ladder else value

    def value(self, parameter: Scalar) -> Scalar:
        """The knob's value for a parameter that Optuna drew."""
        if self.ladder:
            return self.ladder[int(parameter)]
        return rounded(self.knob, parameter)


def axes_of(menu: ProxyMenu) -> Mapping[str, Axis]:
    """An axis for every knob, in the menu's order."""
    return {name: Axis.of(knob) for name, knob in menu.knobs.items()}


def rounded(knob: Knob, value: Scalar) -> Scalar:
    """A drawn float to a few significant digits, still within the bounds; others as they are."""
    if knob.type != "float" or not isinstance(value, float):
        return value
    assert knob.low is not None
    assert knob.high is not None
    return min(max(float(f"{value:.{SIGNIFICANT_DIGITS}g}"), knob.low), knob.high)
