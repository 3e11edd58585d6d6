"""What a world says of runs that it was not made of.

Nights of a hundred real iterations over cpu-tiny, from other days: what they found is of their own
making, and good ones in numbers that no table drawn at random has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from bench.simulator.world import World
from trainer.spec import Config
from trajectory.evidence import Evidence
from trajectory.journal import read_rows
from trajectory.rows import CampaignRow

NIGHTS = {
    "by TPE (docs/demo)": Path(__file__).parents[2] / "docs/demo/trajectory.jsonl",
    "by the sampler": Path(__file__).parent / "nights/2026-11-23.jsonl",
}
"""By who searched: whoever looks elsewhere asks a world of what it was not made of."""
SEEDS = (0, 1)
"""Those that a table's truth is the mean of."""
BEST = 0.3
"""The share that is told apart."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """A world beside a real night."""

    configs: int
    correlation: float
    """Pearson's, of truths and scores."""
    rmse: float
    """The runs' own noise included."""
    bias: float
    """What the world says, less what was measured."""
    bias_best: float
    """Of the best ones."""

    def __str__(self) -> str:
        return (
            f"{self.configs} configs of a real night that it was not made of: correlation "
            f"{self.correlation:.3f}, rmse {self.rmse:.3f}, too high by {self.bias:+.3f}, the best "
            f"{BEST:.0%} by {self.bias_best:+.3f}"
        )


def of_a_night(world: World, night: Path) -> Unseen | None:
    """None where the world is of another menu."""
    rows = list(read_rows(night))
    if not any(isinstance(row, CampaignRow) and row.menu_name == world.menu.name for row in rows):
        return None
    pairs = []
    for entry in Evidence(rows).configs.values():
        scores = [entry.scores[seed] for seed in SEEDS if seed in entry.scores]
        if not isinstance(entry.config, Config) or not scores or not entry.iter:
            continue
        truth = world.truth(entry.config)
        if truth is not None:
            pairs.append((truth, fmean(scores)))
    told, seen = np.array(pairs).T
    off, best = told - seen, seen <= np.quantile(seen, BEST)
    return Unseen(
        configs=len(pairs),
        correlation=float(np.corrcoef(told, seen)[0, 1]),
        rmse=float(np.sqrt(np.mean(off**2))),
        bias=float(off.mean()),
        bias_best=float(off[best].mean()),
    )
