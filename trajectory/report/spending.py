"""Where the night went: time, energy, money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trajectory.report.reading.ledger import Ledger
from trajectory.report.reading.turns import Spent, Turn

MAX_BARS = 120
"""More iterations than this are averaged in groups of equal size."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Consecutive iterations, averaged."""

    first: int
    last: int
    spent: Spent
    """Mean of one iteration, in seconds."""
    energy_wh: float | None
    """Mean of one iteration, over those that were metered."""


@dataclass(frozen=True, slots=True)
class Spending:
    """All of it. ``cost_usd = energy_wh / 1000 * usd_per_kwh``: the metered energy's price."""

    total: Spent
    """Of calibration and iterations, in seconds of work."""
    long_runs_s: float
    """Of work on long runs, beside that."""
    elapsed_s: float
    """From the campaign's creation to its last row, pauses and stops included."""
    energy_wh: float | None
    """Metered in calibration, iterations and long runs; None where nothing meters it."""
    unmetered: int
    """Iterations with trials whose energy nothing metered."""
    cost_usd: float | None
    usd_per_kwh: float
    bars: tuple[Bar, ...]


def spending(ledger: Ledger, usd_per_kwh: float) -> Spending:
    """Of the campaign so far.

    :param usd_per_kwh: what a kilowatt-hour costs.
    """
    total = Spent()
    total.add(ledger.calibration)
    for turn in ledger.turns:
        total.add(turn.spent)
    metered = [ledger.calibration_wh, *(turn.energy_wh for turn in ledger.turns)]
    metered += [row.energy_wh for row in ledger.stress]
    energy_wh = _sum(metered)
    return Spending(
        total=total,
        long_runs_s=sum(row.trial.wall_s for row in ledger.stress),
        elapsed_s=_seconds(ledger.campaign.created_at, ledger.last_at),
        energy_wh=energy_wh,
        unmetered=sum(
            turn.energy_wh is None and turn.outcome != "refused" for turn in ledger.turns
        ),
        cost_usd=None if energy_wh is None else energy_wh / 1000 * usd_per_kwh,
        usd_per_kwh=usd_per_kwh,
        bars=tuple(_bars(ledger.turns)),
    )


def _bars(turns: Sequence[Turn]) -> list[Bar]:
    size = -(-len(turns) // MAX_BARS) or 1
    return [_bar(turns[i : i + size]) for i in range(0, len(turns), size)]


def _bar(turns: Sequence[Turn]) -> Bar:
    spent = Spent()
    for turn in turns:
        spent.add(turn.spent, weight=1 / len(turns))
    metered = [turn.energy_wh for turn in turns if turn.energy_wh is not None]
    return Bar(turns[0].iter, turns[-1].iter, spent, _mean(metered))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _seconds(began: str, ended: str) -> float:
    """Between two times in ISO 8601; 0 where one of them is none, as in another tool's rows."""
    try:
        span = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    except (ValueError, TypeError):
        return 0.0
    return max(0.0, span.total_seconds())
