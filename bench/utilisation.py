"""The plan's utilisation against published tables of whole training runs."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from bench.figure import Figure
from tests.support.scaling_tables import Compared, a100_rows, h100_rows, held_out

MEAN_GOAL = 0.05
MOST_GOAL = 0.10


def run() -> list[Figure]:
    """Relative errors of the throughput; a moment."""
    return [
        *_table("H100, Megatron-LM's README, 9 rows", h100_rows()),
        *_table("A100, Narayanan et al. 2021, 10 rows", a100_rows()),
        *(
            Figure(
                f"{'fitted' if run.gpu == 'b200' else 'not fitted'}: {run.name}",
                100 * error,
                "%",
                f"within {MOST_GOAL:.0%}",
                abs(error) <= MOST_GOAL,
                f"{run.tflops:g} TFLOP/s a GPU published",
            )
            for run, error in held_out()
        ),
    ]


def _table(name: str, rows: Iterable[Compared]) -> list[Figure]:
    seen = list(rows)
    errors = [abs(one.error) for one in seen]
    worst = max(seen, key=lambda one: abs(one.error))
    mean = fmean(errors)
    return [
        Figure(f"{name}: mean error", 100 * mean, "%", f"≤ {MEAN_GOAL:.0%}", mean <= MEAN_GOAL),
        Figure(
            f"{name}: largest error",
            100 * worst.error,
            "%",
            f"within {MOST_GOAL:.0%}",
            max(errors) <= MOST_GOAL,
            f"{worst.row.name}: {worst.tflops:.0f} for {worst.row.tflops:g} TFLOP/s a GPU",
        ),
    ]
