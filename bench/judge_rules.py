"""How strict should the judge be? Rules side by side in the simulated worlds, by runs and by ideas.

Runs cost machine time; ideas may be what is scarce (a slow model proposes, or the menu is small). A
rule that ends races early gets through more ideas for the same runs and through the same ideas with
fewer runs. So each is measured at equal runs and at equal iterations, the confirmation's runs
included. *Confirmed* adds the incumbent and the baseline on four fresh seeds at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, stdev

from bench.figure import Figure
from bench.judge_honesty import ITERATIONS, RUNS
from bench.judge_nights import Night, nights
from bench.judge_worlds import World, small_gains, worlds
from trajectory.rules import Rules

CAMPAIGNS = 40
FRESH_SEEDS = 4


class OBrienFleming(Rules):
    """Keeps early at ``z_keep sqrt(max_runs / pairs)`` (Biometrics 35, 1979)."""

    def keeps_early(self, z: float, pairs: int) -> bool:
        """The bar falls to z_keep at the last pair."""
        return pairs >= 2 and z >= self.z_keep * math.sqrt(self.max_runs / pairs)


@dataclass(frozen=True, slots=True)
class Rule:
    """A candidate for the default."""

    name: str
    rules: Rules
    confirmed: bool = False


FUTILE = Rules(z_keep=1.6, z_drop=0.5, first_drop=-0.3)
FRONTIER = (
    Rule("as shipped", Rules()),
    Rule("as shipped before: z_drop 1, first_drop 0.35", Rules(z_drop=1.0, first_drop=0.35)),
    Rule("z_drop 0.5, first_drop -0.3", Rules(z_drop=0.5, first_drop=-0.3)),
    Rule("z 1.6, z_drop 0.5, first_drop -0.3, confirmed", FUTILE, confirmed=True),
    Rule(
        "the same with O'Brien and Fleming's bars",
        OBrienFleming(z_keep=1.6, z_drop=0.5, first_drop=-0.3),
        confirmed=True,
    ),
)


def run() -> list[Figure]:
    """True gain, nulls kept, and runs or iterations taken, for every rule in every world."""
    found = [world for world in worlds().values() if world.name != "A/A"]
    return [
        figure
        for world in (*found, small_gains())
        for rule in FRONTIER
        for figure in _of(world, rule)
    ]


def _of(world: World, rule: Rule) -> Iterator[Figure]:
    spare = 2 * FRESH_SEEDS if rule.confirmed else 0
    for scarce in (f"{RUNS} runs", f"{ITERATIONS} iterations"):

        def enough(night: Night, scarce: str = scarce) -> bool:
            if scarce.endswith("runs"):
                return night.runs + spare >= RUNS
            return night.evidence.iterations >= ITERATIONS

        ended = list(nights(world, rule.rules, CAMPAIGNS, enough=enough))
        gains = [night.true_gain for night in ended]
        nulls = 100 * sum(n.nulls_kept for n in ended) / max(1, sum(n.nulls for n in ended))
        runs = fmean(night.runs + spare for night in ended)
        iterations = fmean(night.evidence.iterations for night in ended)
        note = (
            f"± {stdev(gains) / math.sqrt(len(gains)):.3f}; {nulls:.1f} % of nulls kept; "
            f"{runs:.0f} runs, {iterations:.0f} iterations"
        )
        if rule.confirmed:
            over = fmean(-n.confirmed(FRESH_SEEDS) - n.true_gain for n in ended)
            note += f"; the confirmed gain is {1000 * over:+.1f} mbpb off"
        yield Figure(f"{world.name}, {scarce}: {rule.name}", fmean(gains), "bpb", note=note)
