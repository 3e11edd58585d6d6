"""Define what a campaign's search consumed and cost."""

from __future__ import annotations

from typing import Protocol

from autoresearch.values import Frozen, NonNegative
from trajectory.rows import Row


class SearchBill(Frozen):
    """Seconds, energy and money of a campaign's search, its long runs included.

    ``cost of use = electricity + write-off``, with ``electricity = kWh × USD per kWh`` and
    ``write-off = hours × capex / (life in years × 8,766)``.
    """

    seconds: NonNegative
    metered_s: NonNegative
    """Seconds whose energy was metered; an assumed power draw covers the rest."""
    kwh: NonNegative
    usd_per_kwh: NonNegative
    supposed_kw: NonNegative
    electricity_usd: NonNegative
    write_off_usd: NonNegative

    @property
    def usd(self) -> float:
        """The cost of use: electricity and write-off."""
        return self.electricity_usd + self.write_off_usd

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    def text(self) -> str:
        """Return the bill as one sentence without its period."""
        supposed = ""
        if self.metered_s < self.seconds:
            share = 1 - self.metered_s / self.seconds
            supposed = (
                f", {share:.0%} of the time unmetered and taken to draw {self.supposed_kw} kW"
            )
        return (
            f"cost of use {_usd(self.usd)}: {self.kwh:.3g} kWh at ${self.usd_per_kwh:g} is "
            f"{_usd(self.electricity_usd)}{supposed}; {self.hours:.3g} hours of the machine's "
            f"write-off are {_usd(self.write_off_usd)}"
        )


class SearchMeter(Protocol):
    """Computes a bill from rows added one at a time; it knows the prices."""

    def add(self, row: Row) -> None: ...
    def bill(self) -> SearchBill: ...


def _usd(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.2g}"
