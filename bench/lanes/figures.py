"""The three measurements as figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from bench.figure import Figure
from bench.lanes import efficiency, search_cost, throughput
from bench.lanes.efficiency import Efficiency
from bench.lanes.search_cost import Parallel
from bench.lanes.store import Store
from bench.lanes.throughput import Throughput
from bench.simulator.comparison import proposers_code

GOAL_EFFICIENCY, GOAL_GAP_MS = 0.95, 10.0
GOAL_ALONE, GOAL_BESIDE = 1.3, 2.0
KEPT = Path("bench-lanes.jsonl")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rounds: int = 5
    """Trials a lane of the sleeping ones."""
    iterations: int = 40
    """Of a real campaign; 0: none is run."""
    nights: int = 20
    """For each number of lanes; 0: none."""
    night_iterations: int = 100


def run(size: Size | None = None, kept: Path = KEPT) -> list[Figure]:
    """All of it; what the file holds is not measured again."""
    size, store = size or Size(), Store(kept)
    return [
        *_efficiency(store, size),
        *(_throughput(store, size) if size.iterations else ()),
        *(_search(store, size) if size.nights else ()),
    ]


def _efficiency(store: Store, size: Size) -> Iterator[Figure]:
    for lanes in (1, 4, 16):
        key = f"efficiency {lanes} {size.rounds}"
        found = store.get(Efficiency, key, partial(efficiency.measure, lanes, rounds=size.rounds))
        aimed = lanes == 16
        yield Figure(
            f"efficiency of {lanes} lanes",
            found.efficiency,
            "",
            f">= {GOAL_EFFICIENCY:g}" if aimed else None,
            found.efficiency >= GOAL_EFFICIENCY if aimed else None,
            f"{found.trials} trials that sleep {found.slept_s:g} s",
        )
        yield Figure(
            f"gap between two trials, {lanes} lanes",
            found.gap_ms,
            "ms",
            f"<= {GOAL_GAP_MS:g}",
            found.gap_ms <= GOAL_GAP_MS,
            "last instruction of one to the first of the next on its lane, median",
        )


def _throughput(store: Store, size: Size) -> Iterator[Figure]:
    for neighbour, goal in ((False, GOAL_ALONE), (True, GOAL_BESIDE)):
        found = []
        for lanes, threads in ((1, 2), (2, 1)):
            key = f"throughput {lanes} {threads} {neighbour} {size.iterations}"
            one = store.get(
                Throughput,
                key,
                partial(
                    throughput.measure,
                    lanes,
                    threads,
                    neighbour=neighbour,
                    iterations=size.iterations,
                ),
            )
            found.append(one)
        where = "beside a busy process" if neighbour else "on a quiet machine"
        whole, halves = found
        ratio = halves.an_hour / whole.an_hour
        yield Figure(
            f"2 lanes × 1 thread against 1 × 2, {where}",
            ratio,
            "×",
            f">= {goal:g}",
            ratio >= goal,
            f"{halves.an_hour:.0f} against {whole.an_hour:.0f} iterations an hour, of"
            f" {size.iterations}",
        )
        yield Figure(
            f"the same in trials, {where}",
            halves.trials_an_hour / whole.trials_an_hour,
            "×",
            note=f"{halves.trials_an_hour:.0f} against {whole.trials_an_hour:.0f} an hour, of"
            f" {halves.trials} and {whole.trials}",
        )


def _search(store: Store, size: Size) -> Iterator[Figure]:
    for lanes in (1, 2, 4, 8, 16):
        nights = [
            store.get(
                Parallel,
                f"search {proposers_code()[:16]} {lanes} {seed} {size.night_iterations}",
                partial(search_cost.measure, lanes, seed, size.night_iterations),
            )
            for seed in range(size.nights)
        ]
        gains = [one.gain for one in nights]
        error = stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
        yield Figure(
            f"true gain after {size.night_iterations} iterations, {lanes} lanes",
            fmean(gains),
            "bpb",
            note=f"± {error:.3f}, {len(gains)} simulated nights, "
            f"{fmean(one.runs for one in nights):.0f} runs each, "
            f"{fmean(one.false_keeps for one in nights):.2f} false keeps",
        )
