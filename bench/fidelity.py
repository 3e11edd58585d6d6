"""How far 60 steps rank as 1000 do, and what makes them say more, by ``calibrate --fidelity``.

Three parts, each resumable or short:

- the command itself, on a menu whose thousand steps take seconds (bench/fidelity.toml), in the
  directory that ``AUTORESEARCH_BENCH_FIDELITY`` names or runs/bench-fidelity; what is in its
  journal is not run again;
- the table of real trials (:mod:`bench.table`): short runs of some seeds against the long run of
  another, over all configs and among the best; ``python -m bench.table.ways`` has other ways to
  spend as much;
- made-up scores of known correlation: how often the intervals hold it, and how often a way is
  advised that is no better.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import numpy as np

from autoresearch.words import counted
from bench.figure import Figure
from bench.table.plan import LONG_STEPS, MORE_SEEDS, SEEDS, SHORT_STEPS
from bench.table.store import TableStore
from trajectory.calibrated import Calibrated, Correlation
from trajectory.calibration import Scored, times_to_gain, ways_of
from trajectory.statistics.bootstrap import Resampled, interval
from trajectory.statistics.fidelity import fidelity

MENU = Path(__file__).with_name("fidelity.toml")
CONFIGS, LONG_SEEDS = 40, 1
GOAL = 0.8
DIRECTORY = "AUTORESEARCH_BENCH_FIDELITY"
TABLE_JOURNAL = Path("runs/table/trials.jsonl")
_COMMAND = Path(sys.executable).with_name("autoresearch")


def run() -> list[Figure]:
    """All of it; the first time, the command takes most of an hour on a core."""
    return [*_measured(), *_of_the_table(), *_coverage(), *_advice()]


# --- the command -------------------------------------------------------------------------------


def _measured() -> Iterator[Figure]:
    found = _calibrated(Path(os.environ.get(DIRECTORY, "runs/bench-fidelity")))
    note = f"menu mini, n = {found.n}, {found.long_seeds} long runs each"
    for way in found.ways:
        is_own = way is found.own
        gain = "" if way.gain is None else f"; gain {_said(way.gain)}, surely {way.surely:+.2f}"
        best = f"; best {found.best_n} {_said(way.best)}" if way.best else ""
        yield Figure(
            name=f"mini: {way.name}",
            value=way.spearman.value,
            unit="Spearman",
            goal=f"at least {GOAL}" if is_own else None,
            met=way.spearman.value >= GOAL if is_own else None,
            note=f"{note if is_own else ''}{_said(way.spearman)}, Kendall {_said(way.kendall)}, "
            f"cost {way.cost:.2f}{gain}{best}; forgone {way.forgone_bpb:.3f} bpb",
        )
    if found.long_runs:
        yield Figure(
            "mini: a long run", found.long_runs.value, "Spearman", note=str(found.long_runs)
        )
    for rho, times in times_to_gain(found.steps_curve):
        yield Figure(f"mini: length for {rho:.2f}", times, "× 60 steps")


def _calibrated(directory: Path) -> Calibrated:
    options = [f"--menu={MENU}", f"--campaign={directory}", f"--configs={CONFIGS}"]
    done = subprocess.run(
        [
            str(_COMMAND),
            "calibrate",
            "--fidelity",
            f"--long-seeds={LONG_SEEDS}",
            *options,
            "--json",
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Calibrated.model_validate(json.loads(done.stdout))


def _said(found: Correlation) -> str:
    return str(found)


# --- the table ---------------------------------------------------------------------------------


def _of_the_table() -> Iterator[Figure]:
    """cpu-tiny's 60 steps against its 1000 of a seed that is none of theirs; and the training loss
    on the way of these 1000, which shares the seed with what it is to tell."""
    known = TableStore(TABLE_JOURNAL).trials
    short = {
        (config, seed): trial.val_bpb
        for (config, seed, steps), trial in known.items()
        if steps == SHORT_STEPS and trial.val_bpb is not None
    }
    others = (*SEEDS[1:], *MORE_SEEDS)
    long = {
        config: (trial.val_bpb, trial.loss)
        for (config, seed, steps), trial in known.items()
        if (seed, steps) == (SEEDS[0], LONG_STEPS) and trial.val_bpb is not None
        if all((config, other) in short for other in others)
    }
    scores = [score for score, _ in long.values()]
    ways = {
        f"60 steps, {counted(count, 'seed')}": [
            fmean(short[config, seed] for seed in others[:count]) for config in long
        ]
        for count in range(1, len(others) + 1)
    }
    for step in _ON_THE_WAY:
        ways[f"its own loss after {step} steps"] = [
            fmean(loss[step - _WINDOW : step]) for _, loss in long.values()
        ]
    order = sorted(range(len(scores)), key=lambda one: scores[one])
    for name, way in ways.items():
        for share in (1, 4, 5, 10):
            some = order[: round(len(order) / share)]
            found = fidelity([way[one] for one in some], [scores[one] for one in some])
            if found is None:
                yield Figure(f"cpu-tiny: {name}", len(some), "configs", note="too few")
                continue
            spread = share == 1
            of = f"of the table's {len(order)}" if spread else f"the best {len(some)} of them"
            yield Figure(
                name=f"cpu-tiny: {name}, {of}",
                value=found.spearman.value,
                unit="Spearman",
                goal=f"at least {GOAL}" if spread else None,
                met=found.spearman.value >= GOAL if spread else None,
                note=f"{found.spearman}, Kendall {found.kendall}",
            )


_ON_THE_WAY, _WINDOW = (60, 120, 240, 480), 20


# --- made up -----------------------------------------------------------------------------------


def _coverage() -> Iterator[Figure]:
    """Bivariate normal scores, whose rho is 6/pi asin(r/2) and tau 2/pi asin(r)."""
    for n, r in ((20, 0.7), (40, 0.7), (64, 0.7), (64, 0.9)):
        rng = np.random.default_rng(n)
        truth = 6 / math.pi * math.asin(r / 2), 2 / math.pi * math.asin(r)
        held = np.zeros(2)
        worlds = 300
        for world in range(worlds):
            x = rng.normal(size=n)
            y = (r * x + math.sqrt(1 - r * r) * rng.normal(size=n)).tolist()
            draws = Resampled(n, resamples=1000, seed=world)
            for place, values in enumerate(
                (draws.spearman(x.tolist(), y), draws.kendall(x.tolist(), y))
            ):
                found = interval(values)
                held[place] += found is not None and found.lo <= truth[place] <= found.hi
        yield Figure(
            name=f"intervals that hold, n = {n}, r = {r}",
            value=100 * held[0] / worlds,
            unit="%",
            goal="95 ± 3 %",
            met=abs(100 * held[0] / worlds - 95) <= 3,
            note=f"Spearman; Kendall {100 * held[1] / worlds:.1f} %; {worlds} worlds",
        )


def _advice() -> Iterator[Figure]:
    """Twelve ways beside the campaign's own, all with noise of their own and noise that they share:
    as good as it, and one of them better by so much of Spearman's correlation."""
    worlds = 100
    for n, least in ((40, 1.0), (40, 0.5), (80, 0.5), (80, 0.75)):
        advised, gains = 0, []
        for world in range(worlds):
            rng = np.random.default_rng((7, world))
            truth, shared = rng.normal(size=n), 0.6 * rng.normal(size=n)
            noises = [0.4 * rng.normal(size=n) for _ in range(13)]
            noises[-1] *= least
            noise_shared = [shared] * 12 + [least * shared]
            ways = {
                f"{number}": Scored((truth + one + own).tolist(), 1.0)
                for number, (one, own) in enumerate(zip(noise_shared, noises, strict=True))
            }
            found = ways_of(ways, truth.tolist())
            gain = found[-1].gain
            gains.append(gain.value if gain else 0.0)
            advised += any(way.surely is not None and way.surely > 0 for way in found)
        share = 100 * advised / worlds
        if least == 1:
            goal, said = "at most 5 %", "a way no better is advised"
        else:
            goal, said = None, f"a way better by {np.mean(gains):.2f} is advised"
        yield Figure(
            name=f"worlds where {said}, n = {n}",
            value=share,
            unit="%",
            goal=goal,
            met=share <= 5 if goal else None,
            note=f"12 ways and the own, {worlds} worlds",
        )
