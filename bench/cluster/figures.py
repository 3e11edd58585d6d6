"""Both measurements as figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.cluster.busy import kept_busy
from bench.cluster.kills import survive
from bench.figure import Figure

NODES = ("node1", "node2", "node3", "node4")
KEPT = Path("bench-cluster")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    lanes: tuple[int, ...] = (16, 64)
    turns: int = 10
    """Trials of each lane."""
    kills: int = 100
    seed: int = 0
    """Of the kills."""


def run(size: Size | None = None, kept: Path = KEPT) -> list[Figure]:
    """The lanes first, then the kills; those are kept in a directory, and not done again."""
    size = size or Size()
    figures = [figure for many in size.lanes for figure in kept_busy(many, NODES, size.turns)]
    return [*figures, *(survive(size.kills, NODES, kept, size.seed) if size.kills else ())]
