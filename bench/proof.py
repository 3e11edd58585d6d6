"""Print the tables of docs/proof.md: ``python -m bench.proof``.

Each rule of keeping runs the same simulated campaigns. In null campaigns no idea is worth anything,
so every keep is false and every gain that is believed is luck. In the others some ideas help, and
the believed gain is compared with the true one. The noise is that of real trials
(:func:`bench.judge_worlds.measured`); the last table uses these trials themselves
(:class:`bench.judge_worlds.RecordedWorld`).

The rules of other loops are as published; docs/proof.md cites them. A language model's own judgment
is not simulated: ideas come at random, and none fails.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from bench.judge_nights import Night
from bench.judge_worlds import (
    FRESH_SEED,
    Recipe,
    World,
    measured,
    recorded,
    recorded_runs,
    without_gains,
)
from trajectory.confirmation import CONFIRM_SEEDS
from trajectory.ranking import top
from trajectory.rows import Rules

CAMPAIGNS = 60
IDEAS, RUNS = 100, 205
FINALISTS = 3
CONFIRM_RUNS = (FINALISTS + 1) * CONFIRM_SEEDS
AGAIN = 40
"""Confirmations of each campaign whose intervals are counted, each on other seeds."""
SEARCH, CONFIRMED = "this project: its search", "**this project: what it reports**"
ENDLESS = 10**9
NULL_HEAD = "gains reported | false keeps | believed gain"


@dataclass(frozen=True, slots=True)
class Ended:
    """A campaign of one rule; gains in bits per byte, positive is better."""

    keeps: int
    false_keeps: int
    """Keeps of ideas that are no better than what they replaced."""
    believed: float
    true: float
    is_reported: bool
    """Whether it ends with a gain."""
    holds: tuple[bool, ...] = ()
    """Whether each of its 95 % intervals of the gain holds."""


@dataclass(slots=True)
class Loop:
    """A loop that keeps by a simple rule."""

    world: World
    rng: random.Random
    best: Recipe
    claimed: float = 0.0
    """Score with which the best was kept."""
    runs: int = 0
    seen: list[float] = field(default_factory=list)
    """Scores of all runs, in order."""

    def run(self, recipe: Recipe, seed: int | None = None) -> float:
        """Return the score of one run, on a new seed by default."""
        score = self.world.score(recipe, self.runs if seed is None else seed, self.rng)
        self.runs += 1
        self.seen.append(score)
        return score

    def confidence(self, score: float) -> float | None:
        """Return a gain over the baseline's run in median absolute deviations of all runs; None if
        there are too few (computeConfidence of pi-autoresearch)."""
        middle = median(self.seen)
        deviation = median(abs(one - middle) for one in self.seen)
        if len(self.seen) < 3 or not deviation:
            return None
        return abs(score - self.seen[0]) / deviation


@dataclass(frozen=True, slots=True)
class Rule:
    """When a loop keeps an idea."""

    name: str
    keep: Callable[[Loop, Recipe], float | None]
    """Runs an idea and returns the score with which it is kept; None: discarded."""
    seeds: int = 0
    """Number of fixed seeds on which every config runs; 0: each run has a new seed."""

    def campaign(self, world: World, number: int, ideas: int, runs: int) -> Ended:
        """Run one campaign until it has tried so many ideas or the next may take too many runs."""
        rng = random.Random(number)
        baseline = world.begin()
        loop = Loop(world, rng, baseline)
        for seed in range(self.seeds):
            loop.run(baseline, seed)
        if not self.seeds:
            loop.run(baseline)
        start = loop.claimed = fmean(loop.seen)
        keeps = false = tried = 0
        while tried < ideas and loop.runs + max(1, self.seeds) <= runs:
            tried += 1
            idea = world.idea(loop.best, rng)
            score = self.keep(loop, idea)
            if score is not None:
                keeps, false = keeps + 1, false + (idea.bpb >= loop.best.bpb)
                loop.best, loop.claimed = idea, score
        believed, true = start - loop.claimed, baseline.bpb - loop.best.bpb
        return Ended(keeps, false, believed, true, keeps > 0)


def any_gain(loop: Loop, idea: Recipe) -> float | None:
    """Keep what is better than the best number, each run on a new seed."""
    score = loop.run(idea)
    return score if score < loop.claimed else None


def one_seed(loop: Loop, idea: Recipe) -> float | None:
    """Keep what is better than the best number, all runs on one seed (karpathy/autoresearch)."""
    score = loop.run(idea, 0)
    return score if score < loop.claimed else None


def half_a_percent(loop: Loop, idea: Recipe) -> float | None:
    """Keep what is better by 0.5 %."""
    score = loop.run(idea)
    return score if score < loop.claimed * (1 - 0.005) else None


def rerun(loop: Loop, idea: Recipe) -> float | None:
    """Keep any gain, but run it again if it is below one median deviation (pi-autoresearch)."""
    score = any_gain(loop, idea)
    if score is None:
        return None
    confidence = loop.confidence(score)
    return any_gain(loop, idea) if confidence is not None and confidence < 1 else score


def likely_real(loop: Loop, idea: Recipe) -> float | None:
    """Keep a gain only from two median deviations, which pi-autoresearch calls likely real."""
    score = any_gain(loop, idea)
    if score is None:
        return None
    confidence = loop.confidence(score)
    return score if confidence is not None and confidence >= 2 else None


def majority(seeds: int) -> Callable[[Loop, Recipe], float | None]:
    """Keep what is better than the best config on more than half of these seeds."""

    def keep(loop: Loop, idea: Recipe) -> float | None:
        scores = [loop.run(idea, seed) for seed in range(seeds)]
        best = [loop.world.score(loop.best, seed, loop.rng) for seed in range(seeds)]
        wins = sum(new < old for new, old in zip(scores, best, strict=True))
        return fmean(scores) if 2 * wins > seeds else None

    return keep


RULES = (
    Rule("any gain, one run", any_gain),
    Rule("karpathy/autoresearch: any gain, one run, one seed", one_seed, 1),
    Rule("a gain of 0.5 %, one run", half_a_percent),
    Rule("pi-autoresearch: run again below 1.0×", rerun),
    Rule("pi-autoresearch, if it kept only from 2.0×", likely_real),
    Rule("better on both of two seeds", majority(2), 2),
    Rule("better on two of three seeds", majority(3), 3),
)


def own(world: World, number: int, ideas: int, runs: int) -> tuple[Ended, Ended]:
    """Run one campaign of the product, its confirmation included in the runs.

    Return what its search finds and what its confirmation reports.
    """
    night = Night(world, random.Random(number))
    night.measure_baseline()
    while night.evidence.iterations < ideas and night.runs < runs - CONFIRM_RUNS:
        night.iterate(Rules())
    if not night.keeps:
        nothing = Ended(0, 0, 0.0, 0.0, is_reported=False)
        return nothing, nothing
    first = next(one for one in top(night.evidence, 2) if one.delta_vs_baseline is not None)
    true, claimed = -night.delta(first.config_hash), -(first.delta_vs_baseline or 0.0)
    fresh = [
        night.confirmed(first.config_hash, range(start, start + CONFIRM_SEEDS), finalists=FINALISTS)
        for start in range(FRESH_SEED, FRESH_SEED + AGAIN * CONFIRM_SEEDS, CONFIRM_SEEDS)
    ]
    stands = fresh[0].hi < 0
    holds = (first.delta_lo or 0.0) <= -true <= (first.delta_hi or 0.0)
    return (
        Ended(night.keeps, night.false_keeps, claimed, true, is_reported=True, holds=(holds,)),
        Ended(
            int(stands),
            int(stands and true <= 0),
            -fresh[0].delta,
            true,
            is_reported=stands,
            holds=tuple(one.lo <= -true <= one.hi for one in fresh),
        ),
    )


Campaigns = dict[str, list[Ended]]
"""The campaigns of each rule, by its name."""


def campaigns(world: Callable[[int], World], ideas: int, runs: int, *, with_own: bool) -> Campaigns:
    """Run every rule's campaigns.

    :param world: returns the world of the campaign of a number.
    :param with_own: whether the product's are among them, which take minutes.
    """
    numbers = range(CAMPAIGNS)
    found = {
        rule.name: [rule.campaign(world(one), one, ideas, runs) for one in numbers]
        for rule in RULES
    }
    if with_own:
        pairs = [own(world(one), one, ideas, runs) for one in numbers]
        found[SEARCH], found[CONFIRMED] = map(list, zip(*pairs, strict=True))
    return found


def tables(*, with_own: bool) -> Iterator[list[str]]:
    """Yield the lines of each table of docs/proof.md."""
    null, found = without_gains(measured()), measured()
    by_ideas = campaigns(lambda _: null, IDEAS, ENDLESS, with_own=with_own)
    by_runs = campaigns(lambda _: null, ENDLESS, RUNS, with_own=with_own)
    yield [
        f"| rule | {IDEAS} ideas: {NULL_HEAD} | {RUNS} runs: {NULL_HEAD} |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {name} | {_null(by_ideas[name])} | {_null(by_runs[name])} |" for name in by_ideas),
    ]
    ended = campaigns(lambda _: found, ENDLESS, RUNS, with_own=with_own)
    yield [
        "| rule | true gain | believed gain | too much | false keeps | 95 % intervals that hold |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {name} | {_gain(one)} | {_false(one)} | {_holds(one)} |"
            for name, one in ended.items()
        ),
    ]
    count = len(recorded_runs()) - 1
    still = campaigns(lambda n: recorded(n, gains=False), count, ENDLESS, with_own=with_own)
    real = campaigns(lambda n: recorded(n, gains=True), count, ENDLESS, with_own=with_own)
    yield [
        f"| rule | without gains: {NULL_HEAD} | with gains: true gain | believed gain | too much |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {name} | {_null(still[name])} | {_gain(real[name])} |" for name in still),
    ]


def _null(ended: Sequence[Ended]) -> str:
    reported = sum(one.is_reported for one in ended)
    keeps = fmean(one.false_keeps for one in ended)
    believed = fmean(one.believed if one.is_reported else 0.0 for one in ended)
    return f"{reported} of {len(ended)} | {keeps:.2g} | {believed:.3f}"


def _gain(ended: Sequence[Ended]) -> str:
    true, believed = (fmean(getattr(one, name) for one in ended) for name in ("true", "believed"))
    return f"{true:.3f} | {believed:.3f} | {100 * (believed / true - 1):+.0f} %".replace("-", "−")


def _false(ended: Sequence[Ended]) -> str:
    return f"{100 * sum(one.false_keeps for one in ended) / sum(one.keeps for one in ended):.0f} %"


def _holds(ended: Sequence[Ended]) -> str:
    held = [held for one in ended for held in one.holds]
    return f"{100 * fmean(held):.0f} % of {len(held)}" if held else "none given"


if __name__ == "__main__":
    for lines in tables(with_own=True):
        print("\n".join(lines), end="\n\n", flush=True)
