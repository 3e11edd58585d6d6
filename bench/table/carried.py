"""``python -m bench.table.carried``: how many of a night's best to carry to a long run, and how.

Of the table's configs that were trained long: how much worse the best of the first so many by short
runs is than the best of all, in the mean over resampled nights. And whether a first look at the
first :data:`FIRST` of them, a stress test of some hundred steps with a schedule of its own, finds
the best among them again. Stopped, the same command goes on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from agent.menu.files import load_menu
from agent.search.campaign_settings import new_settings
from agent.workbench.corpora import prepared_corpus
from bench.command import run
from bench.paired.fresh import FreshRuns
from bench.simulator.idle import be_idle
from bench.table.plan import SEEDS, SHORT_STEPS
from bench.table.store import TableTrial, read_published
from bench.table.ways import MENU, LongRuns
from trainer.executors.local import LocalExecutor
from trainer.spec import Config
from trajectory.statistics.fidelity import spearman

FIRST = 16
CARRIED = (1, 3, 5, 8, 12, 16, 20)
RESAMPLES = 4000
LOOK_SEED = 2
"""None of the long runs'."""


def main(
    steps: Annotated[list[int] | None, typer.Option(help="Of a first look; may repeat.")] = None,
    work: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("runs/carried"),
    idle: Annotated[bool, typer.Option(help="Only what nobody else wants of the machine.")] = True,
) -> None:
    """What carrying so many forgoes, then the first looks that are asked for."""
    if idle:
        be_idle()
    published = read_published()
    known = LongRuns.of_table(published)
    long = np.array([one.score() for one in known])
    short = np.array([_short(one.config, published) for one in known])
    draws = _resampled(len(known))
    for count in CARRIED:
        lost, found = _forgone(short, long, count, draws)
        typer.echo(f"carry {count}: {lost:.4f} bpb forgone, the best is among them {found:.0%}")
    first = [known[place] for place in np.argsort(short)[:FIRST]]
    for count in steps or ():
        _look(first, count, work)


def _look(first: Sequence[LongRuns], steps: int, work: Path) -> None:
    """One run of each, its schedule ending with it."""
    scores = _trained([one.config for one in first], steps, work)
    long = [one.score() for one in first]
    order = np.argsort(scores)
    best = min(long)
    carried = [f"{count}: {min(long[i] for i in order[:count]) - best:.4f}" for count in (1, 3, 5)]
    typer.echo(
        f"a look of {steps} steps at the first {len(first)}: Spearman "
        f"{spearman(scores, long):.2f} with their long runs; then carrying {', '.join(carried)} "
        "bpb forgone"
    )


def _short(config: Config, published: Sequence[TableTrial]) -> float:
    """The mean of its short runs on the table's seeds that are not the long run's, two of them."""
    scores = [
        trial.val_bpb
        for trial in published
        if trial.config_hash == config.config_hash
        and trial.steps == SHORT_STEPS
        and trial.seed not in SEEDS[:1]
        and trial.val_bpb is not None
    ]
    return fmean(scores[:2])


def _resampled(count: int) -> list[NDArray[np.int64]]:
    """Configs drawn with replacement, each once."""
    rng = np.random.default_rng(0)
    return [np.unique(rng.integers(0, count, count)) for _ in range(RESAMPLES)]


def _forgone(
    short: NDArray[np.float64],
    long: NDArray[np.float64],
    count: int,
    draws: Sequence[NDArray[np.int64]],
) -> tuple[float, float]:
    """In the mean, and the share of draws in which it is nothing."""
    lost = [long[draw[np.argsort(short[draw])][:count]].min() - long[draw].min() for draw in draws]
    return fmean(lost), fmean(one == 0 for one in lost)


def _trained(configs: Sequence[Config], steps: int, work: Path) -> list[float]:
    """Their scores after so many steps; infinite where a run failed."""
    settings = new_settings(load_menu(MENU), MENU, {"threads": 1})
    corpus = prepared_corpus(settings, Console(stderr=True))
    whole = settings.model_copy(update={"horizon_steps": None})
    work.mkdir(parents=True, exist_ok=True)
    with LocalExecutor() as executor:
        runs = FreshRuns(work / f"looks-{steps}.jsonl", executor, whole, corpus, steps)
        scores = [runs.on(config, LOOK_SEED) for config in configs]
    return [math.inf if score is None else score for score in scores]


if __name__ == "__main__":
    run(main)
