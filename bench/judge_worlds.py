"""Simulated worlds in which the truth about every config is known.

A world determines the gain of an idea over the recipe it edits, the noise of one run of a recipe,
and the correlation of two recipes on one seed. All scores are bits per byte, lower is better.

- **W1**: of the ideas 30 % are worth nothing, 60 % make it worse (by Exp(0.06)), 6 % gain
  U(0, 0.02) and 4 % U(0.02, 0.2). One run has sd 0.045; two recipes correlate 0.5 on a seed.
- **W2**: the same with Student's t of four degrees of freedom instead of the normal, and an sd
  that doubles for every 0.4 bpb by which a recipe is worse.
- **W3**: the noise of the demo's journal. The sd as a function of the score is fitted to its
  replicated configs, about 0.014 in the best third and 0.06 in the worst. A child correlates 0.69
  to 0.98 with its parent on a seed, as 56 fresh trials of that campaign's configs did. So after
  some keeps no correlation with the baseline remains.
- **A/A**: W1 with ideas that are all worth nothing.
- **measured**: the ideas of W1 with the noise of 816 real trials, 68 configs of cpu-tiny-code on
  the same 12 seeds (bench/code_ideas.jsonl): the sd of the baseline's runs, and correlations of a
  child with its parent between the quartiles of the configs' correlations with the baseline.
- **recorded**: those trials themselves, without a model of their noise (:class:`RecordedWorld`).
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import correlation, fmean, quantiles, stdev

import numpy as np

DEMO_JOURNAL = Path(__file__).parents[1] / "docs" / "demo" / "trajectory.jsonl"
RECORDED = Path(__file__).with_name("code_ideas.jsonl")
SEARCH_SEEDS = 6
"""Recorded seeds on which a search runs. The others are fresh."""
FRESH_SEED = 1000
"""First seed that no search runs on."""
START_BPB = 3.1
SIGMA = 0.045
MOST_SD = 0.15
"""Upper bound of a fitted sd: no config of the demo was noisier."""


@dataclass(slots=True)
class Recipe:
    """One config of a simulated campaign."""

    bpb: float
    """Its mean score over all possible seeds."""
    like: Recipe | None = None
    """The recipe with whose noise its own correlates."""
    correlation: float = 0.0
    """The correlation with that recipe on one seed."""
    deviates: dict[int, float] = field(default_factory=dict)
    """Deviations from the mean by seed, in sds of a run."""


@dataclass(frozen=True, slots=True)
class World:
    """The distributions of ideas and noise."""

    name: str
    gain: Callable[[random.Random], float]
    """The gain of an idea over the recipe it edits; positive is better."""
    sd: Callable[[float], float]
    """The sd of one run of a recipe with this bpb."""
    deviate: Callable[[random.Random], float]
    """The deviation of a run, with mean 0 and sd 1."""
    correlation: tuple[float, float]
    """Bounds of a recipe's correlation with ``like``, which is drawn uniformly."""
    inherits: bool
    """Whether ``like`` is the recipe it edits; if not, a common recipe of all."""

    def begin(self) -> Recipe:
        """Return the baseline."""
        common = Recipe(START_BPB)
        return Recipe(START_BPB, common, self.correlation[0])

    def idea(self, parent: Recipe, rng: random.Random) -> Recipe:
        """Return a change of ``parent``."""
        like = parent if self.inherits else parent.like
        return Recipe(parent.bpb - self.gain(rng), like, rng.uniform(*self.correlation))

    def score(self, recipe: Recipe, seed: int, rng: random.Random) -> float:
        """Return the score of one run, which is the same in every call for a seed."""
        return recipe.bpb + self.sd(recipe.bpb) * self._deviate(recipe, seed, rng)

    def _deviate(self, recipe: Recipe, seed: int, rng: random.Random) -> float:
        if seed not in recipe.deviates:
            own = self.deviate(rng)
            if recipe.like is not None:
                shared = self._deviate(recipe.like, seed, rng)
                rho = recipe.correlation
                own = rho * shared + math.sqrt(1 - rho**2) * own
            recipe.deviates[seed] = own
        return recipe.deviates[seed]


def worlds() -> dict[str, World]:
    """Return all worlds by name."""
    half = math.sqrt(0.5)  # two recipes that correlate so with a third correlate 0.5
    return {
        "W1": World("W1", _mixed, lambda _: SIGMA, _normal, (half, half), inherits=False),
        "W2": World("W2", _mixed, _rising, _heavy, (half, half), inherits=False),
        "W3": World("W3", _mixed, demo_sd, _normal, (0.69, 0.98), inherits=True),
        "A/A": World("A/A", lambda _: 0.0, lambda _: SIGMA, _normal, (half, half), inherits=False),
    }


def small_gains() -> World:
    """Return W1 without large gains: each better idea gains U(0, 0.02)."""
    return replace(worlds()["W1"], name="small gains", gain=_small)


def shared_seeds(share: float = 0.95) -> World:
    """Return W1 with this share of a run's variance explained by its seed, for all configs alike;
    0.95 is as if a seed draws the training subset."""
    correlation = (math.sqrt(share),) * 2
    return replace(worlds()["W1"], name="shared seeds", correlation=correlation)


@cache
def recorded_runs() -> dict[str, tuple[float, ...]]:
    """Return the scores of each config of :data:`RECORDED` on its seeds, which are the same for
    all; the baseline is first."""
    runs: dict[str, list[float]] = defaultdict(list)
    for line in RECORDED.read_text("utf-8").splitlines():
        row = json.loads(line)
        runs[row["idea"]].append(row["val_bpb"])
    return {name: tuple(scores) for name, scores in runs.items()}


def measured() -> World:
    """Return a world with the ideas of W1 and the noise of the recorded runs."""
    baseline, *ideas = recorded_runs().values()
    low, _, high = quantiles((correlation(baseline, one) for one in ideas), n=4)
    sd = stdev(baseline)
    return World("measured", _mixed, lambda _: sd, _normal, (low, high), inherits=True)


def without_gains(world: World) -> World:
    """Return the same world with ideas that are all worth nothing."""
    return replace(world, gain=lambda _: 0.0)


@dataclass(frozen=True, slots=True)
class RecordedWorld(World):
    """The recorded trials in place of a simulation: their configs and seeds in a random order.

    A search sees half of the seeds. A config's true score is its mean on the other half, on which
    a confirmation runs.
    """

    baseline: Recipe
    ideas: Iterator[Recipe]

    def begin(self) -> Recipe:
        """Return the baseline."""
        return self.baseline

    def idea(self, parent: Recipe, rng: random.Random) -> Recipe:
        """Return the next recorded config, each of which changes the baseline."""
        return next(self.ideas)

    def score(self, recipe: Recipe, seed: int, rng: random.Random) -> float:
        """Return a recorded run."""
        place = seed % SEARCH_SEEDS
        if seed >= FRESH_SEED:
            place = SEARCH_SEEDS + (seed - FRESH_SEED) % SEARCH_SEEDS
        return recipe.bpb + recipe.deviates[place]


def recorded(number: int, *, gains: bool) -> RecordedWorld:
    """Return the recorded trials in the order of this number.

    :param gains: whether the ideas keep their gains. Otherwise each config's runs are moved to the
        mean of the baseline's, so that only their noise remains.
    """
    rng, seeds = random.Random(number), list(range(2 * SEARCH_SEEDS))
    rng.shuffle(seeds)
    recipes = []
    for runs in recorded_runs().values():
        scores = [runs[seed] for seed in seeds]
        truth = fmean(scores[SEARCH_SEEDS:]) if gains else fmean(scores)
        deviates = {place: score - truth for place, score in enumerate(scores)}
        recipes.append(Recipe(truth if gains else START_BPB, deviates=deviates))
    baseline, *ideas = recipes
    rng.shuffle(ideas)
    base = worlds()["A/A"]
    return RecordedWorld(
        "recorded", base.gain, base.sd, base.deviate, base.correlation, False, baseline, iter(ideas)
    )


def _mixed(rng: random.Random) -> float:
    kind = rng.random()
    if kind < 0.3:
        return 0.0
    if kind < 0.9:
        return -rng.expovariate(1 / 0.06)
    return rng.uniform(0, 0.02) if kind < 0.96 else rng.uniform(0.02, 0.2)


def _normal(rng: random.Random) -> float:
    return rng.gauss(0, 1)


def _heavy(rng: random.Random) -> float:
    """Draw from Student's t of four degrees of freedom, scaled to an sd of one."""
    return rng.gauss(0, 1) / math.sqrt(rng.gammavariate(2, 0.5)) / math.sqrt(2)


def _rising(bpb: float) -> float:
    return min(MOST_SD, SIGMA * 2 ** ((bpb - START_BPB) / 0.4))


def demo_sd(bpb: float) -> float:
    """Return the sd of one run of a config with this score in the demo's campaign."""
    at, sd, slope = _demo_law()
    return min(MOST_SD, sd * math.exp(slope * (bpb - at)))


@cache
def _demo_law() -> tuple[float, float, float]:
    """Return a score, the sd there, and the slope of the sd's logarithm.

    They are fitted to the variances within the journal's replicated configs, as gamma variables
    (Fisher scoring).
    """
    means, variances, dofs = _demo_spreads()
    at = fmean(means)
    design = np.column_stack([np.ones(len(means)), np.array(means) - at])
    weight, seen = np.array(dofs) / 2, np.array(variances)
    found = np.array([math.log(float(np.average(seen, weights=weight))), 0.0])
    for _ in range(50):
        expected = np.exp(design @ found)
        information = design.T @ (design * weight[:, None])
        found = found + np.linalg.solve(information, design.T @ (weight * (seen / expected - 1)))
    return at, math.exp(float(found[0]) / 2), float(found[1]) / 2


def _demo_spreads() -> tuple[list[float], list[float], list[int]]:
    scores: dict[str, dict[int, float]] = defaultdict(dict)
    for line in DEMO_JOURNAL.read_text("utf-8").splitlines():
        row = json.loads(line)
        for trial in [row["trial"]] if row["kind"] == "baseline" else row.get("trials", []):
            if trial["result"]["status"] == "ok":
                scores[trial["config_hash"]][trial["seed"]] = trial["result"]["val_bpb"]
    replicated = [list(own.values()) for own in scores.values() if len(own) > 1]
    return (
        [fmean(own) for own in replicated],
        [float(np.var(own, ddof=1)) for own in replicated],
        [len(own) - 1 for own in replicated],
    )


def _small(rng: random.Random) -> float:
    gain = _mixed(rng)
    return gain if gain <= 0 else rng.uniform(0, 0.02)
