"""How often the intervals of an attribution hold, in worlds whose truth is known."""

from __future__ import annotations

from random import Random

from bench.figure import Figure
from funnel.attribution.worth import Estimate, worths
from tests.support.attributions import names, simulated, worlds

WORLDS = 2000
SEEDS = (2, 3, 4, 6)
GOAL = 93
PLANTED = 0.12


def run() -> list[Figure]:
    """Coverage by seeds and noise, and one change of five that carries it all."""
    figures = []
    for equal_noise in (True, False):
        for seeds in SEEDS:
            figures += _coverage(seeds, equal_noise=equal_noise)
    return [*figures, *_planted()]


def _coverage(seeds: int, *, equal_noise: bool) -> list[Figure]:
    rng = Random(17)
    told = held = whole = 0
    for alone, together, scores in worlds(rng, WORLDS, seeds=seeds, equal_noise=equal_noise):
        found = worths(scores, "W", "B", names(len(alone)))
        told += len(alone)
        held += sum(_holds(worth, true) for worth, true in zip(found.changes, alone, strict=True))
        whole += _holds(found.remainder, together)
    noise = "equal noise" if equal_noise else "noise as campaigns have it"
    note = f"{WORLDS} worlds, {seeds} seeds, {noise}"
    return [
        _at_least("worths whose 95 % interval holds", held / told, GOAL, note),
        _at_least("remainders likewise", whole / WORLDS, GOAL, note),
    ]


def _holds(estimate: Estimate | None, true: float) -> bool:
    if estimate is None or estimate.low is None or estimate.high is None:
        return False
    return estimate.low <= true <= estimate.high


def _planted() -> list[Figure]:
    rng = Random(19)
    found_it = others = 0
    for _ in range(WORLDS):
        scores = simulated(rng, [0.0, 0.0, PLANTED, 0.0, 0.0], 0.0)
        changes = worths(scores, "W", "B", names(5)).changes
        told = [worth is not None and (worth.helps or worth.harms) for worth in changes]
        found_it += told.pop(2)
        others += sum(told)
    note = f"{WORLDS} worlds, 4 seeds, one change of five worth {PLANTED} bpb"
    return [
        _at_least("the one told from zero", found_it / WORLDS, 90, note),
        Figure(
            "the others, each",
            false := 100 * others / (4 * WORLDS),
            "%",
            goal="at most 6 %",
            met=false <= 6,
            note=note,
        ),
    ]


def _at_least(name: str, share: float, goal: float, note: str) -> Figure:
    value = 100 * share
    return Figure(name, value, "%", goal=f"at least {goal} %", met=value >= goal, note=note)
