"""Figures of a report: numbers, each with the formula that gives it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Unit = Literal["usd", "usd_each", "share", "ratio", "count", "months"]

_DECIMALS: Mapping[str, int] = {"usd": 2, "usd_each": 4}


@dataclass(frozen=True, slots=True)
class CostFigure:
    """One number of a report."""

    key: str
    label: str
    value: float | None
    """None if there is no such number; the formula says when."""
    formula: str
    unit: Unit = "usd"

    def rounded(self) -> float | None:
        """Return the value as JSON gives it.

        Money is rounded to the cent, money of one iteration (``usd_each``) to a hundredth of that,
        ratios to a tenth, and the rest to six digits.
        """
        if self.value is None:
            return None
        if self.unit in _DECIMALS:
            return rounded_usd(self.value, _DECIMALS[self.unit])
        return round(self.value, 1) if self.unit == "ratio" else float(f"{self.value:.6g}")

    def text(self) -> str:
        """Return the value as a table gives it."""
        if self.value is None:
            return "none"
        if self.unit in _DECIMALS:
            return usd_text(self.value, _DECIMALS[self.unit])
        if self.unit == "share":
            return f"{self.value:.3g}" if self.value < 0.01 else f"{self.value:.4g}"
        if self.unit == "ratio":
            return f"{self.value:,.1f}×"
        return f"{self.value:,.3g}" if self.unit == "months" else f"{self.value:,.4g}"


@dataclass(frozen=True, slots=True)
class CostSection:
    """Figures that belong together, under the name they have in JSON."""

    name: str
    title: str
    figures: tuple[CostFigure, ...]


@dataclass(frozen=True, slots=True)
class View:
    """One view of the bill: its sections, a verdict, and its assumptions."""

    inputs: Mapping[str, Any]
    """JSON fields before the sections."""
    sections: tuple[CostSection, ...]
    assumptions: tuple[str, ...]
    verdict: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the published form: every section under its name, then the formulas."""
        values = {s.name: {f.key: f.rounded() for f in s.figures} for s in self.sections}
        formulas = {s.name: {f.key: f.formula for f in s.figures} for s in self.sections}
        rest = {"formulas": formulas, "assumptions": list(self.assumptions)}
        return {**self.inputs, **values, **rest}


def rounded_usd(usd: float, decimals: int = 2) -> float:
    """Round to the cent, or to this many decimals; round an amount that would become zero to two
    digits."""
    rounded = round(usd, decimals)
    return rounded if abs(usd) >= 10**-decimals else float(f"{usd:.2g}")


def usd_text(usd: float, decimals: int = 2) -> str:
    """Format money: ``$1,678.99``, ``-$0.50``, ``$0.00076``."""
    size = abs(rounded_usd(usd, decimals))
    sign = "-" if usd < 0 else ""
    if size >= 10**-decimals or size == 0:
        return f"{sign}${size:,.{decimals}f}"
    return f"{sign}${size:.12f}".rstrip("0")


def ratio(numerator: float, denominator: float) -> float | None:
    """Divide; return None if the denominator is zero."""
    return numerator / denominator if denominator else None
