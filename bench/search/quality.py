"""Compare the sampler with uniform edits, TPE and Optuna's Gaussian process, in a made-up world.

Campaigns are paired: the n-th campaign of every search has the same seed, so it has the same noise
on the same configs and the same baseline runs.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from agent.menu.files import load_menu
from agent.menu.rails import Rails
from agent.proposers.base import Proposer
from agent.proposers.draws import RandomProposer
from agent.proposers.sampler import SamplerProposer
from bench.figure import Figure
from bench.search import ask_time
from bench.search.gaussian_process import GaussianProcessProposer
from bench.search.made_up import MadeUpWorld
from bench.search.tpe import TpeProposer
from tests.support.simulated.night import MakeProposer, night
from trainer.schema import Budget

NIGHTS, ITERATIONS = 12, 100
FIRST_SEED = 1000
"""Lower seeds are for tuning, since campaigns on which a search was tuned would overrate it."""
AGAINST = "uniform edits"
SEARCHES: Mapping[str, tuple[MakeProposer, int | None]] = {
    AGAINST: (RandomProposer, None),
    "TPE": (TpeProposer, 3),
    "Gaussian process": (GaussianProcessProposer, None),
    "the sampler": (SamplerProposer, None),
}
"""The constructor of each search, and the most knobs it may change (None: the default)."""


def run(searches: Mapping[str, tuple[MakeProposer, int | None]] = SEARCHES) -> list[Figure]:
    """Return each search's mean regret, its difference to uniform edits, and its proposal time."""
    rails = Rails(load_menu("cpu-tiny"), budget=Budget())
    quick: dict[str, Proposer] = {
        "uniform edits": RandomProposer(rails),
        "TPE": TpeProposer(rails),
        "the sampler": SamplerProposer(rails, chance=0.0),
    }
    return [*nights(searches, NIGHTS, ITERATIONS), *ask_time.figures(quick)]


def nights(
    searches: Mapping[str, tuple[MakeProposer, int | None]], count: int, iterations: int
) -> list[Figure]:
    """Return each search's mean regret after ``iterations``, over ``count`` campaigns."""
    world = MadeUpWorld()
    left = {
        name: [
            night(
                world,
                make,
                seed=FIRST_SEED + number,
                iterations=iterations,
                settings=None if most is None else {"max_changes": most},
            ).regret(iterations)
            for number in range(count)
        ]
        for name, (make, most) in searches.items()
    }
    return [
        _figure(name, regrets, left[AGAINST], iterations=iterations)
        for name, regrets in left.items()
    ]


def _figure(
    name: str, regrets: Sequence[float], others: Sequence[float], *, iterations: int
) -> Figure:
    pairs = [one - other for one, other in zip(regrets, others, strict=True)]
    return Figure(
        f"regret after {iterations} iterations, {name}",
        1000 * fmean(regrets),
        "mbpb",
        note=f"± {1000 * stderr(regrets):.1f}; {len(regrets)} nights in the made-up world; less "
        f"{AGAINST}', paired: {1000 * fmean(pairs):+.1f} ± {1000 * stderr(pairs):.1f}",
    )


def stderr(values: Sequence[float]) -> float:
    """Return the standard error of a mean."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
