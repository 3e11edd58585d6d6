"""The table of all iterations for the page's script, in columns, which take less space than
rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trainer.spec import BPB, Measure
from trajectory.report.reading.iterations import Iteration
from trajectory.report.statistics import of_runs
from trajectory.report.words.text import cut, label
from trajectory.report.words.wording import value_text
from trajectory.statistics.run_noise import RunNoise

MOST_CHARACTERS = 160
"""The most characters of a row's changes; the row's details show all of them."""


def columns(
    iterations: Sequence[Iteration], noise: RunNoise | None, measure: Measure = BPB
) -> dict[str, Any]:
    """Return a list for each column, with one entry for each iteration.

    ``kind`` holds indices into ``kinds``. Scores have one decimal more than the page shows.
    ``digits`` says how many it shows if these are not four.
    """
    kinds = sorted({iteration.kind for iteration in iterations})
    place = {kind: i for i, kind in enumerate(kinds)}

    def half(iteration: Iteration) -> float | None:
        if iteration.mean is None:
            return None
        estimate = of_runs(0.0, iteration.runs, noise)
        return estimate.hi

    def turned(objective: float | None) -> float | None:
        return None if objective is None else measure.score(objective)

    decimals = measure.digits + 1
    return {
        **({} if measure.digits == BPB.digits else {"digits": measure.digits}),
        "kinds": [label(kind, 20) for kind in kinds],
        "iter": [iteration.iter for iteration in iterations],
        "kind": [place[iteration.kind] for iteration in iterations],
        "outcome": [iteration.outcome for iteration in iterations],
        "bpb": _rounded(iterations, lambda iteration: turned(iteration.mean), decimals),
        "half": _rounded(iterations, half, decimals),
        "n": [iteration.runs if iteration.mean is not None else None for iteration in iterations],
        "delta": _rounded(iterations, lambda iteration: turned(iteration.delta), decimals),
        "stderr": _rounded(iterations, lambda iteration: iteration.stderr, decimals),
        "seconds": _rounded(iterations, lambda iteration: iteration.spent.total or None, 2),
        "wh": _rounded(iterations, lambda iteration: iteration.energy_wh, 4),
        "changes": [changed_text(iteration) for iteration in iterations],
    }


def changed_text(iteration: Iteration, limit: int = MOST_CHARACTERS) -> str:
    """Return the proposed changes, such as ``lr=0.003 n_layer=4``, valid or not, or else their
    description."""
    if not iteration.changed:
        return label(iteration.described, limit)
    shown = (f"{label(name, 24)}={value_text(value)}" for name, value in iteration.changed.items())
    return cut(" ".join(shown), limit)


def _rounded(
    iterations: Sequence[Iteration], of: Callable[[Iteration], float | None], digits: int
) -> list[float | None]:
    return [
        None if (value := of(iteration)) is None else round(value, digits)
        for iteration in iterations
    ]
