"""The table of all iterations for the page's script, in columns, which take less space than
rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trainer.spec import BPB, Measure
from trajectory.report.reading.iterations import Iteration
from trajectory.report.words.text import cut, label
from trajectory.report.words.wording import value_text
from trajectory.statistics.run_noise import RunNoise

MOST_CHARACTERS = 160
"""The most characters of a row's changes; the row's details show all of them."""


def columns(
    iterations: Sequence[Iteration], noise: RunNoise | None, measure: Measure = BPB
) -> dict[str, Any]:
    """Return a list for each column, with one entry for each iteration.

    ``kind`` and ``outcome`` hold indices into ``kinds`` and ``outcomes``, and ``half`` the half
    interval of a mean by its number of runs. Scores have one decimal more than the page shows.
    ``digits`` says how many it shows if these are not four. A column without any value is empty.
    """
    kinds = sorted({iteration.kind for iteration in iterations})
    outcomes = sorted({iteration.outcome for iteration in iterations})
    runs = sorted({iteration.runs for iteration in iterations if iteration.mean is not None})

    def turned(objective: float | None) -> float | None:
        return None if objective is None else measure.score(objective)

    decimals = measure.digits + 1
    return {
        **({} if measure.digits == BPB.digits else {"digits": measure.digits}),
        "kinds": [label(kind, 20) for kind in kinds],
        "iter": [iteration.iter for iteration in iterations],
        "kind": [kinds.index(iteration.kind) for iteration in iterations],
        "outcomes": outcomes,
        "outcome": [outcomes.index(iteration.outcome) for iteration in iterations],
        "bpb": _rounded(iterations, lambda iteration: turned(iteration.mean), decimals),
        "half": {n: round(noise.half_interval(n), decimals) for n in runs} if noise else {},
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
    found = [
        None if (value := of(iteration)) is None else round(value, digits)
        for iteration in iterations
    ]
    return [] if all(value is None for value in found) else found
