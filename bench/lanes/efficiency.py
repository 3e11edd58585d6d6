"""How much of the lanes' time trials have, where these sleep and so want no processor.

Every lane has a trial waiting for it always. Efficiency is the seconds slept over the lanes'
seconds from the first trial's first instruction to the last one's end; the gap is what passes on a
lane from the last instruction of one trial to the first of the next.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import median

from autoresearch.values import Frozen
from bench.lanes import sleeping
from tests.support.configs import config
from trainer.executors.lanes import Lane, Lanes
from trainer.executors.local import LocalExecutor
from trainer.executors.placement import spots
from trainer.spec import Budget, Place, TrialFailed, TrialSpec


class Efficiency(Frozen):
    """Of so many lanes."""

    lanes: int
    trials: int
    slept_s: float
    """Each of them."""
    efficiency: float
    gap_ms: float
    """Median over the lanes' pairs of neighbouring trials."""


def measure(lanes: int, *, sleep_s: float = 2.0, rounds: int = 5) -> Efficiency:
    """So many trials a lane, one after another."""
    with tempfile.TemporaryDirectory(prefix="autoresearch-bench-") as scratch:
        opened = [
            Lane(
                Place(lane=spot.name),
                LocalExecutor(entry=sleeping.ENTRY, allow_unsandboxed=True, cores=spot.cores),
            )
            for spot in spots(lanes, "cpu")
        ]
        with Lanes(opened) as executor:
            ready = [
                executor.submit(_spec(f"w{n}", 1.0), Path(scratch, f"w{n}")) for n in range(lanes)
            ]
            for job in ready:  # every server has imported torch
                job.result()
            jobs = [
                executor.submit(_spec(f"t{n}", sleep_s), Path(scratch, f"t{n}"))
                for n in range(lanes * rounds)
            ]
            times: dict[str, list[tuple[float, float]]] = defaultdict(list)
            for job in jobs:
                finished = job.result()
                assert isinstance(finished.result, TrialFailed)
                assert finished.place is not None
                began, ended, _ = json.loads(finished.result.message)
                times[finished.place.lane].append((began, ended))
    every = [one for lane in times.values() for one in lane]
    passed_s = max(ended for _, ended in every) - min(began for began, _ in every)
    slept_s = sum(ended - began for began, ended in every)
    gaps = [
        later[0] - earlier[1]
        for lane in times.values()
        for earlier, later in pairwise(sorted(lane))
    ]
    return Efficiency(
        lanes=lanes,
        trials=len(jobs),
        slept_s=sleep_s,
        efficiency=slept_s / (lanes * passed_s),
        gap_ms=1e3 * median(gaps),
    )


def _spec(trial_id: str, sleep_s: float) -> TrialSpec:
    return TrialSpec(
        trial_id=trial_id,
        config=config(),
        seed=0,
        corpus_dir="none",
        corpus_sha256="",
        budget=Budget(unit="seconds", amount=sleep_s),
    )
