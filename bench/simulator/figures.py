"""The part of ``python -m bench`` that searches in worlds of real runs.

Every world that can be had is searched, by the product's sampler and by uniform edits: that of the
published table, and those of the checkouts that were named. Nights are kept, so that a second run
tells them again at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from autoresearch.errors import CampaignError, SettingsError
from bench.figure import Figure
from bench.simulator.comparison import Mean, NightStore, Plan, spend
from bench.simulator.real import RealWorld
from bench.simulator.searches import SEARCHES
from bench.simulator.tables import MILESTONES
from bench.simulator.world import World
from bench.simulator.worlds import WORLDS, Sources, worlds

NIGHTS = Path("runs/simulator/nights.jsonl")
PLAN = Plan(nights=40, iterations=100)
AGAINST = "uniform"
COMPARED = (AGAINST, "sampler")
"""Of the searches, those that everybody waits for; ``python -m bench.simulator searches`` has all,
and longer nights."""


def run(published: Sequence[Path] | None) -> list[Figure]:
    """How far each world can be believed, and what two searches leave in it."""
    sources, store = Sources(checkouts=tuple(published or ())), NightStore(NIGHTS)
    figures: list[Figure] = []
    for name in WORLDS:
        try:
            found = worlds(name, sources)
        except (CampaignError, SettingsError) as error:
            figures.append(Figure(f"{name}: not searched", 0, "", note=str(error)))
            continue
        figures += _believed(found)
        figures += _searched(name, found, store)
    return figures


def _believed(found: Sequence[World]) -> Iterator[Figure]:
    for world in found:
        if isinstance(world, RealWorld):
            seen = world.validation
            yield Figure(
                f"{world.name}: Spearman of what it was not shown",
                seen.rank,
                "",
                note=f"{seen.configs} configs, rmse {seen.rmse:.4f}; best quarter "
                f"{seen.rank_best:.3f}, best tenth's rmse {seen.rmse_best:.4f}; noise "
                f"{world.noise}",
            )


def _searched(name: str, found: Sequence[World], store: NightStore) -> Iterator[Figure]:
    spent = {who: spend(name, found, (who, SEARCHES[who]), PLAN, store) for who in COMPARED}
    left = Mean.of([one.regret(PLAN.iterations) for one in spent[AGAINST]]).value
    for who, nights in spent.items():
        for milestone in (one for one in MILESTONES if one <= PLAN.iterations):
            judged = who != AGAINST and milestone == PLAN.iterations
            regret = Mean.of([one.regret(milestone) for one in nights])
            pairs = zip(nights, spent[AGAINST], strict=True)
            less = Mean.of([a.regret(milestone) - b.regret(milestone) for a, b in pairs])
            yield Figure(
                f"{name}, {who}: regret after {milestone}",
                1000 * regret.value,
                "thousandths",
                goal=f"at most half of {AGAINST}'s" if judged else None,
                met=regret.value <= left / 2 if judged else None,
                note=f"± {1000 * regret.stderr:.2f}; less {AGAINST}'s, paired: {less}",
            )
