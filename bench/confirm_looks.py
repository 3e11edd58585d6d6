"""What looking again costs a confirmation, where there is nothing to confirm.

A null config differs from the baseline by nothing in truth; on one text it differs by what that
text favours (as in :mod:`bench.confirm_honesty`), and each run has its seed's noise. It is
confirmed with 6 seeds, then with 8, 10 and 12 of the same.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from bench.confirm_honesty import PART_SD, PARTS, TEXT, TEXT_SD
from bench.figure import Figure
from bench.judge_nights import RESULT
from trainer.spec import TextScore, TrialOk
from trajectory.confirmation import FreshRuns, gains

NULLS = 5000
LOOKS = (6, 8, 10, 12)
"""Seeds that are known at each."""
SEED_SD = 0.03
"""Of one run, in bits per byte: one percent of 3."""


def run() -> list[Figure]:
    """Shares of nulls that were once called better, by how each look is taken."""
    nulls = [_confirmed(random.Random(number)) for number in range(NULLS)]
    note = f"{NULLS:,} null configs; looks with {', '.join(map(str, LOOKS))} seeds"
    return [
        _share("one look", [first[:1] for first, _ in nulls], note),
        _share("four looks, each taken for the first", [first for first, _ in nulls], note),
        _share("four looks, as the product takes them", [later for _, later in nulls], note),
    ]


def _share(how: str, nulls: Sequence[Sequence[bool]], note: str) -> Figure:
    percent = 100 * sum(map(any, nulls)) / len(nulls)
    return Figure(f"nulls once called confirmed: {how}", percent, "%", note=note)


def _confirmed(rng: random.Random) -> tuple[list[bool], list[bool]]:
    """At each look whether it is called better: taken for the first, and as what it is."""
    favours = [rng.gauss(0, TEXT_SD * math.sqrt(PARTS)) for _ in range(PARTS)]
    ours = {seed: _run(rng, favours) for seed in range(LOOKS[-1])}
    theirs = {seed: _run(rng, [0.0] * PARTS) for seed in range(LOOKS[-1])}
    calls: tuple[list[bool], list[bool]] = ([], [])
    for look, seeds in enumerate(LOOKS):
        config, baseline = (
            FreshRuns({seed: one[seed] for seed in range(seeds)}) for one in (ours, theirs)
        )
        for taken, looks in zip(calls, (0, look), strict=True):
            _, fresh = gains(config, baseline, [TEXT], finalists=1, looks=looks)
            taken.append(fresh.hi < 0)
    return calls


def _run(rng: random.Random, favours: Sequence[float]) -> TrialOk:
    score = 3 + rng.gauss(0, SEED_SD)
    parts = tuple(score + favour + rng.gauss(0, PART_SD) for favour in favours)
    text = TextScore(sha256=TEXT.sha256, val_bpb=1, val_bytes=1, val_tokens=1, parts_bpb=parts)
    return RESULT.model_copy(update={"val_bpb": score, "texts": (text,)})
