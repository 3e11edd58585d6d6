"""Nights of several searches, as a table to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

from rich.table import Table

from bench.simulator.comparison import regrets
from bench.simulator.night import Night
from bench.simulator.real import RealWorld
from bench.simulator.unseen import NIGHTS, of_a_night
from bench.simulator.world import World
from trainer.spec import gpt

MILESTONES = (25, 50, 100, 200)
"""Iterations after which regret is told."""
TIMES = (100, 200, 400)
"""Times of one baseline run after which it is told, too."""


def described(world: World) -> str:
    """A world, and how far it can be believed."""
    start = world.truth(gpt(world.menu.baseline))
    lines = [f"  baseline {start:.4f}, best known {world.best:.4f}"]
    if isinstance(world, RealWorld):
        seen = world.validation
        lines += [
            f"  {seen.configs} configs; not shown to it: rmse {seen.rmse:.4f}, Spearman "
            f"{seen.rank:.3f}; best tenth: rmse {seen.rmse_best:.4f}; best quarter: Spearman "
            f"{seen.rank_best:.3f}",
            f"  noise: {world.noise}",
        ]
        for who, night in NIGHTS.items():
            unseen = of_a_night(world, night)
            lines += [f"  a night {who}: {unseen}"] if unseen else []
    return "\n".join(lines)


def regret_table(
    name: str, spent: Mapping[str, Sequence[Night]], against: str, iterations: int
) -> Table:
    """Thousandths, ± standard error; the last columns of differences are paired."""
    nights = len(spent[against])
    title = f"{name}: regret × 1000 after so many iterations, {nights} nights"
    table = Table(title=title, title_justify="left", box=None)
    milestones = [one for one in MILESTONES if one <= iterations] or [iterations]
    columns = [(str(one), partial(_at_iteration, iteration=one)) for one in milestones]
    columns += [(f"{one} × baseline's time", partial(_at_time, times=one)) for one in TIMES]
    last = columns[len(milestones) - 1][1]
    difference = f"less {against}'s at {milestones[-1]}"
    headers = [header for header, _ in columns]
    for header in ("search", *headers, difference, "runs", "ask ms", "night s"):
        table.add_column(header)
    regret = [{who: mean for who, mean, _ in regrets(spent, against, at)} for _, at in columns]
    for who, _, less in regrets(spent, against, last):
        mine = spent[who]
        table.add_row(
            who,
            *(str(column[who]) for column in regret),
            "" if who == against else str(less),
            f"{fmean(one.runs for one in mine):.0f}",
            f"{fmean(one.ask_ms for one in mine):.1f}",
            f"{fmean(one.seconds for one in mine):.1f}",
        )
    return table


def _at_iteration(night: Night, iteration: int) -> float:
    return night.regret(iteration)


def _at_time(night: Night, times: int) -> float:
    """After so many times what one run of the baseline took."""
    first = night.stages[0]
    return night.regret_at_s(times * first.train_s / first.runs)
