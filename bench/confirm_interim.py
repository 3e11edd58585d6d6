"""Measure how often repeated interim analyses confirm a config that gains nothing.

A null config does not differ from the baseline in truth. On one text it differs by what that text
favors (as in :mod:`bench.confirm_honesty`), and each run has its seed's noise. It is confirmed with
6 seeds, then with 8, 10 and 12 of the same. Or 12 are requested, and a person who watches ends the
confirmation after the second or any later seed, as soon as the config would count as confirmed.
"""

import math
import random
from collections.abc import Callable, Sequence

from bench.confirm_honesty import PART_SD, PARTS, TEXT, TEXT_SD
from bench.figure import Figure
from bench.judge_nights import RESULT
from trainer.schema import TextScore, TrialOk
from trajectory.confirmation import FEWEST_SEEDS, FreshRuns, gains

NULLS = 5000
ANALYSES = (6, 8, 10, 12)
"""The number of finished seeds at each interim analysis."""
SEED_SD = 0.03
"""Sd of one run, in bits per byte: one percent of 3."""


def run() -> list[Figure]:
    """Return shares of nulls that were ever called better, by the treatment of each analysis."""
    nulls = [_confirmed(random.Random(number), ANALYSES) for number in range(NULLS)]
    every = range(FEWEST_SEEDS, ANALYSES[-1] + 1)
    watched = [_watched(random.Random(number), every) for number in range(NULLS)]
    ended = f"{NULLS:,} null configs; after any of {every[0]} to {every[-1]} seeds"
    note = f"{NULLS:,} null configs; analyses with {', '.join(map(str, ANALYSES))} seeds"
    return [
        _share("one analysis", [first[:1] for first, _ in nulls], note),
        _share("four analyses, each taken for the first", [first for first, _ in nulls], note),
        _share("four analyses, as the product takes them", [later for _, later in nulls], note),
        _share("watched and ended, taken for the first", [first for first, _ in watched], ended),
        _share("watched and ended, as it is taken", [later for _, later in watched], ended),
    ]


def _share(how: str, nulls: Sequence[Sequence[bool]], note: str) -> Figure:
    percent = 100 * sum(map(any, nulls)) / len(nulls)
    return Figure(f"nulls once called confirmed: {how}", percent, "%", note=note)


def _watched(rng: random.Random, counts: Sequence[int]) -> tuple[list[bool], list[bool]]:
    """Return, for each number of seeds, whether a null that ended there would be called better.

    The first list treats each analysis as the first, the second does as the product does. The last
    analysis is not an early end, so it is a first analysis in both.
    """
    first, later = _confirmed(rng, counts, earlier_analyses=lambda number: number + 1)
    return first, [*later[:-1], first[-1]]


def _confirmed(
    rng: random.Random,
    counts: Sequence[int],
    earlier_analyses: Callable[[int], int] = lambda number: number,
) -> tuple[list[bool], list[bool]]:
    """Return, for each number of seeds, whether a null is called better.

    The first list treats each analysis as the first, the second by its true number.

    :param earlier_analyses: returns the analyses before the one of a given index, from 0.
    """
    favours = [rng.gauss(0, TEXT_SD * math.sqrt(PARTS)) for _ in range(PARTS)]
    ours = {seed: _run(rng, favours) for seed in range(ANALYSES[-1])}
    theirs = {seed: _run(rng, [0.0] * PARTS) for seed in range(ANALYSES[-1])}
    calls: tuple[list[bool], list[bool]] = ([], [])
    for number, seeds in enumerate(counts):
        config, baseline = (
            FreshRuns({seed: one[seed] for seed in range(seeds)}) for one in (ours, theirs)
        )
        for taken, before in zip(calls, (0, earlier_analyses(number)), strict=True):
            _, fresh = gains(config, baseline, [TEXT], finalists=1, earlier_analyses=before)
            taken.append(fresh.hi < 0)
    return calls


def _run(rng: random.Random, favours: Sequence[float]) -> TrialOk:
    score = 3 + rng.gauss(0, SEED_SD)
    parts = tuple(score + favour + rng.gauss(0, PART_SD) for favour in favours)
    text = TextScore(sha256=TEXT.sha256, val_bpb=1, val_bytes=1, val_tokens=1, parts_bpb=parts)
    return RESULT.model_copy(update={"val_bpb": score, "texts": (text,)})
