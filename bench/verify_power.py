"""Measure what ``verify`` detects and what it misses, over worlds whose truth is known.

Each world (:mod:`tests.support.verify_worlds`) has a ladder, a forecast made from it alone, and one
run of each kind. A run is judged at several shares of it, and a false alarm at any of them
counts.
"""

import math
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np

from bench.figure import Figure
from funnel.forecast.band import make_forecast
from funnel.forecast.verification import verify
from tests.support.verify_worlds import KINDS, World

WORLDS = 200
FIVE = "x1.05"
CHECKED = (0.03, 0.1, 0.3, 0.6, 1.0)
"""Shares of a sound run at which it is judged; a faulty one at every second of them."""


@dataclass(frozen=True)
class Outcome:
    """The results of one world."""

    world: World
    is_usable: bool
    half_width: float
    covers_end: bool
    covered: float
    """Share of the sound run's windows whose level lies within the band."""
    verdicts: dict[str, str]
    caught_at: dict[str, float]
    """Shares of the run at which alarms came, by kind of run."""
    named: str
    """The name of the end law."""


def outcome_of(seed: int) -> Outcome:
    """Make one world's forecast and judge its runs, each at every one of CHECKED shares of it."""
    world = World.of(seed)
    run = world.target()
    forecast = make_forecast(world.ladder(), run, seed=seed)
    end_point = forecast.points[-1]
    verdicts: dict[str, str] = {}
    caught_at, covered = {}, 0.0
    for number, kind in enumerate(KINDS):
        log = world.log(kind, number)
        for share in CHECKED if number < 2 else CHECKED[::2]:
            last = share * run.schedule.steps * run.tokens_per_step
            part = replace(log, points=tuple(p for p in log.points if p.tokens <= last))
            found = verify(part, run, forecast)
            verdicts[kind] = found.verdict
            if found.verdict == "broken":
                caught_at[kind] = share
                break
        if kind == "sound":
            inside = [w.low_bpb <= w.bpb <= w.high_bpb for w in found.windows]
            covered = float(np.mean(inside))
    end = world.end_bpb() * math.exp(np.random.default_rng([seed, 8]).normal(0, world.luck))
    return Outcome(
        world=world,
        is_usable=forecast.telling_point is not None,
        half_width=end_point.half_width,
        covers_end=end_point.low_bpb <= end <= end_point.high_bpb,
        covered=covered,
        verdicts=verdicts,
        caught_at=caught_at,
        named=world.end,
    )


def figures(outcomes: list[Outcome]) -> list[Figure]:
    """Return the figures of the table."""
    usable = [o for o in outcomes if o.is_usable]
    by_end = Counter(o.named for o in usable)
    rows = [
        Figure(
            "forecasts that call themselves usable",
            100 * len(usable) / len(outcomes),
            "%",
            note=f"of {len(outcomes)} worlds; "
            + ", ".join(f"{end} {count}" for end, count in sorted(by_end.items())),
        ),
        Figure(
            "median half width of the band at the end",
            100 * float(np.median([o.half_width for o in outcomes])),
            "%",
            note=f"usable {100 * float(np.median([o.half_width for o in usable] or [0])):.2g} %",
        ),
        _share(outcomes, "the end's 95 % band holds the end", lambda o: o.covers_end, ">= 90 %"),
        Figure(
            "windows of sound runs within the 95 % band",
            100 * float(np.mean([o.covered for o in outcomes])),
            "%",
            ">= 90 %",
            float(np.mean([o.covered for o in outcomes])) >= 0.90,
            "worst end law "
            + min(
                f"{100 * float(np.mean([o.covered for o in outcomes if o.named == end])):.3g} % "
                f"({end})"
                for end in {o.named for o in outcomes}
            ),
        ),
        _share(
            outcomes, "false alarms: sound", lambda o: o.verdicts["sound"] == "broken", "<= 2 %"
        ),
        _share(
            outcomes, "false alarms: spikes", lambda o: o.verdicts["spikes"] == "broken", "<= 2 %"
        ),
    ]
    for kind in KINDS[2:]:
        goal = ">= 95 %" if kind == FIVE else None
        rows.append(_caught(usable, outcomes, kind, goal))
    return [*rows, *_wrongly_within(usable)]


def _share(
    outcomes: list[Outcome], name: str, holds: Callable[[Outcome], bool], goal: str
) -> Figure:
    count = sum(map(holds, outcomes))
    value = 100 * count / max(len(outcomes), 1)
    limit = float(goal.split()[1])
    met = value >= limit if goal.startswith(">=") else value <= limit
    return Figure(name, value, "%", goal, met, f"{count} of {len(outcomes)}")


def _caught(usable: list[Outcome], outcomes: list[Outcome], kind: str, goal: str | None) -> Figure:
    caught = [o for o in usable if o.verdicts[kind] == "broken"]
    everywhere = sum(o.verdicts[kind] == "broken" for o in outcomes)
    value = 100 * len(caught) / max(len(usable), 1)
    places = [o.caught_at[kind] for o in caught if kind in o.caught_at]
    at = f"median at {100 * float(np.median(places)):.2g} % of the run; " if places else ""
    return Figure(
        f"caught where usable: {kind}",
        value,
        "%",
        goal,
        None if goal is None else value >= 95,
        f"{at}{len(caught)} of {len(usable)}; in all worlds {everywhere} of {len(outcomes)}",
    )


def _wrongly_within(usable: list[Outcome]) -> list[Figure]:
    return [
        Figure(
            f"called within: {kind}",
            100 * sum(o.verdicts[kind] == "within" for o in usable) / max(len(usable), 1),
            "%",
        )
        for kind in ("sound", FIVE, "stop 5 %", "stop 50 %")
    ]


def run(worlds: int = WORLDS) -> list[Figure]:
    """Measure all worlds, which takes two cores half an hour."""
    with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return figures(list(pool.map(outcome_of, range(worlds), chunksize=4)))
