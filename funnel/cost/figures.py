"""Numbers that come with the formula they are from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Unit = Literal["usd", "usd_each", "share", "ratio", "count", "months", "days"]

_DECIMALS: Mapping[str, int] = {"usd": 2, "usd_each": 4}


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a report."""

    key: str
    label: str
    value: float | None
    """None where there is no such number; the formula says why."""
    unit: Unit
    formula: str
    """With this very report's numbers in it."""

    def rounded(self) -> float | None:
        """As a report gives it: money to the cent, money of one iteration (``usd_each``) to a
        hundredth of that, ratios to a tenth, the rest to six digits."""
        if self.value is None:
            return None
        if self.unit in _DECIMALS:
            return rounded_usd(self.value, _DECIMALS[self.unit])
        if self.unit == "ratio":
            return round(self.value, 1)
        return float(f"{self.value:.6g}")

    def text(self) -> str:
        """For a table."""
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
class Section:
    """Figures that belong together, under the name they have in JSON."""

    name: str
    title: str
    figures: tuple[Figure, ...]

    def values(self) -> dict[str, float | None]:
        return {figure.key: figure.rounded() for figure in self.figures}

    def formulas(self) -> dict[str, str]:
        return {figure.key: figure.formula for figure in self.figures}


def rounded_usd(usd: float, decimals: int = 2) -> float:
    """To the cent, or to so many decimals; what would become nothing, to two significant digits."""
    rounded = round(usd, decimals)
    return rounded if abs(usd) >= 10**-decimals else float(f"{usd:.2g}")


def usd_text(usd: float, decimals: int = 2) -> str:
    """``$1,678.99``, ``-$0.50``, ``$0.00076``."""
    size = abs(rounded_usd(usd, decimals))
    sign = "-" if usd < 0 else ""
    if size >= 10**-decimals or size == 0:
        return f"{sign}${size:,.{decimals}f}"
    return f"{sign}${size:.12f}".rstrip("0")


def ratio(numerator: float, denominator: float) -> float | None:
    """None where nothing is divided by."""
    return numerator / denominator if denominator else None
