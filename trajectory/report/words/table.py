"""The table of all iterations for the page's script, in columns, which take less space than
rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trainer.spec import BPB, Measure
from trajectory.report.reading.turns import Turn
from trajectory.report.statistics import of_runs
from trajectory.report.words.text import cut, label
from trajectory.report.words.wording import value_text
from trajectory.statistics.run_noise import RunNoise

MOST_CHARACTERS = 160
"""The most characters of a row's changes; the row's details show all of them."""


def columns(
    turns: Sequence[Turn], noise: RunNoise | None, measure: Measure = BPB
) -> dict[str, Any]:
    """Return a list for each column, with one entry for each iteration.

    ``kind`` holds indices into ``kinds``. Scores have one decimal more than the page shows.
    ``digits`` says how many it shows if these are not four.
    """
    kinds = sorted({turn.kind for turn in turns})
    place = {kind: i for i, kind in enumerate(kinds)}

    def half(turn: Turn) -> float | None:
        if turn.mean is None:
            return None
        estimate = of_runs(0.0, turn.runs, noise)
        return estimate.hi

    def turned(objective: float | None) -> float | None:
        return None if objective is None else measure.score(objective)

    decimals = measure.digits + 1
    return {
        **({} if measure.digits == BPB.digits else {"digits": measure.digits}),
        "kinds": [label(kind, 20) for kind in kinds],
        "iter": [turn.iter for turn in turns],
        "kind": [place[turn.kind] for turn in turns],
        "outcome": [turn.outcome for turn in turns],
        "bpb": _rounded(turns, lambda turn: turned(turn.mean), decimals),
        "half": _rounded(turns, half, decimals),
        "n": [turn.runs if turn.mean is not None else None for turn in turns],
        "delta": _rounded(turns, lambda turn: turned(turn.delta), decimals),
        "stderr": _rounded(turns, lambda turn: turn.stderr, decimals),
        "seconds": _rounded(turns, lambda turn: turn.spent.total or None, 2),
        "wh": _rounded(turns, lambda turn: turn.energy_wh, 4),
        "changes": [changed_text(turn) for turn in turns],
    }


def changed_text(turn: Turn, limit: int = MOST_CHARACTERS) -> str:
    """Return the proposed changes, such as ``lr=0.003 n_layer=4``, valid or not, or else their
    description."""
    if not turn.changed:
        return label(turn.described, limit)
    shown = (f"{label(name, 24)}={value_text(value)}" for name, value in turn.changed.items())
    return cut(" ".join(shown), limit)


def _rounded(
    turns: Sequence[Turn], of: Callable[[Turn], float | None], digits: int
) -> list[float | None]:
    return [None if (value := of(turn)) is None else round(value, digits) for turn in turns]
