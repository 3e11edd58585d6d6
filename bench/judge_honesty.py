"""Compare the judge's keeps and the ranking's claims with the truth in simulated worlds.

The product's own judge, race, evidence and ranking run whole campaigns (:mod:`bench.judge_nights`)
in worlds whose truth is known (:mod:`bench.judge_worlds`). Each world's figures include:

- the true gain, and the keeps of ideas that are worth nothing;
- the share of the printed 95 % intervals that hold;
- the share of campaigns that wrongly mark a config as better than the baseline;
- the excess of the headline over the truth.

:mod:`bench.proof` compares the rules of published loops.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.figure import Figure
from bench.judge_nights import Night, nights
from bench.judge_worlds import World, shared_seeds, worlds
from trajectory.ranking import Ranked, ranked_config, top
from trajectory.rows import Rules

CAMPAIGNS = 60
SHARED_CAMPAIGNS = 200
ITERATIONS = 100
RUNS = 205
COVERAGE_GOAL = (93, 97)
FALSE_STARS_GOAL = 5


@dataclass(frozen=True, slots=True)
class Reported:
    """One campaign's claims and the truth; shares from 0 to 1, gains in bits per byte."""

    first: bool
    """Whether the first config's interval holds."""
    every: float
    """Share of all configs' intervals that hold."""
    first_difference: bool
    """Whether the interval of the first config's difference to the baseline holds."""
    every_difference: float
    false_star_in_ten: bool
    """Whether one of the ten best is wrongly marked as better than the baseline."""
    false_star: bool
    """Whether any config is wrongly marked as better than the baseline."""
    headline: float
    """The excess of the incumbent's estimated gain over the true gain."""
    plain: float
    """The excess of its mean gain, over the seeds that chose it, over the true gain."""


def reported(night: Night) -> Reported:
    """Compare the ranking of a finished campaign with the truth."""
    lines = [line for line in top(night.evidence, 10**6) if line.delta_vs_baseline is not None]
    holds = [
        _holds(line.objective_lo, night.recipes[line.config_hash].bpb, line.objective_hi)
        for line in lines
    ]
    differ = [_holds(line.delta_lo, night.delta(line.config_hash), line.delta_hi) for line in lines]
    false = [line.beats_baseline and night.delta(line.config_hash) >= 0 for line in lines]
    headline, plain = _promised(night, lines)
    return Reported(
        first=holds[0],
        every=fmean(holds),
        first_difference=differ[0],
        every_difference=fmean(differ),
        false_star_in_ten=any(false[:10]),
        false_star=any(false),
        headline=headline,
        plain=plain,
    )


def _holds(low: float | None, truth: float, high: float | None) -> bool:
    return low is not None and high is not None and low <= truth <= high


def _promised(night: Night, lines: Iterable[Ranked]) -> tuple[float, float]:
    """Return the excess by the posterior and by plain means; 0 if the baseline stayed."""
    for line in lines:
        if line.config_hash == night.incumbent:
            baseline = night.evidence.configs[night.evidence.baseline_hash or ""]
            common = line.seeds
            mean = fmean(baseline.scores[seed] for seed in common if seed in baseline.scores)
            claimed = line.delta_vs_baseline or 0.0
            return -night.true_gain - claimed, -night.true_gain - (line.mean_objective - mean)
    return 0.0, 0.0


def run() -> list[Figure]:
    """Return all figures, world by world."""
    return [figure for world in worlds().values() for figure in _world(world)] + _shared_seeds()


def _shared_seeds() -> list[Figure]:
    """Return the claims' figures in a world where all configs share the effect of a seed."""
    ended = _of_iterations(shared_seeds(), SHARED_CAMPAIGNS)
    return claims(f"shared seeds, {ITERATIONS} iterations", [reported(night) for night in ended])


def _of_iterations(world: World, campaigns: int) -> list[Night]:
    return list(
        nights(
            Night, world, Rules(), campaigns, lambda night: night.evidence.iterations >= ITERATIONS
        )
    )


def _world(world: World) -> list[Figure]:
    name, note = world.name, f"{CAMPAIGNS} simulated campaigns"
    by_runs = list(nights(Night, world, Rules(), CAMPAIGNS, lambda night: night.runs >= RUNS))
    figures = rule_figures(f"{name}, {RUNS} runs", by_runs, note)
    if name != "A/A":
        figures.append(_real(f"{name}, {RUNS} runs", by_runs))
    ended = _of_iterations(world, CAMPAIGNS)
    figures += rule_figures(f"{name}, {ITERATIONS} iterations", ended, note)
    return figures + claims(
        f"{name}, {ITERATIONS} iterations", [reported(night) for night in ended]
    )


def _real(where: str, ended: Sequence[Night]) -> Figure:
    """Return the true share of the estimated gains of the campaigns' incumbents."""
    lines = [ranked_config(night.evidence, night.evidence.incumbent_hash) for night in ended]
    claimed = fmean(-(line.delta_vs_baseline or 0.0) for line in lines if line is not None)
    true = fmean(night.true_gain for night in ended)
    return Figure(f"claimed gain that is real ({where})", 100 * true / claimed, "%")


def rule_figures(where: str, ended: Sequence[Night], note: str) -> list[Figure]:
    """Return a rule's true gain, and its false keeps."""
    keeps = sum(night.keeps for night in ended)
    nulls = sum(night.nulls for night in ended)
    return [
        Figure(f"true gain ({where})", fmean(n.true_gain for n in ended), "bpb", note=note),
        Figure(
            f"ideas worth nothing that were kept ({where})",
            100 * sum(n.nulls_kept for n in ended) / max(1, nulls),
            "%",
        ),
        Figure(
            f"keeps that gained nothing ({where})",
            100 * sum(n.false_keeps for n in ended) / max(1, keeps),
            "%",
        ),
        Figure(
            f"campaigns with such a keep ({where})",
            100 * fmean(n.false_keeps > 0 for n in ended),
            "%",
        ),
    ]


def claims(where: str, seen: Sequence[Reported]) -> list[Figure]:
    """Return the figures of the ranking's claims, with the goals."""

    def stars(name: str, values: Iterable[float]) -> Figure:
        percent = 100 * fmean(values)
        goal = f"at most {FALSE_STARS_GOAL} %"
        return Figure(f"{name} ({where})", percent, "%", goal, percent <= FALSE_STARS_GOAL)

    return [
        share(f"95 % intervals that hold, of the first ({where})", (one.first for one in seen)),
        share(f"of all configs ({where})", (one.every for one in seen)),
        share(f"of the first's difference ({where})", (one.first_difference for one in seen)),
        share(f"of all differences ({where})", (one.every_difference for one in seen)),
        stars("campaigns with a false star in the ten", (one.false_star_in_ten for one in seen)),
        stars("campaigns with a false star anywhere", (one.false_star for one in seen)),
        Figure(f"headline too good by ({where})", 1000 * fmean(o.headline for o in seen), "mbpb"),
        Figure(
            f"the plain mean would be by ({where})", 1000 * fmean(o.plain for o in seen), "mbpb"
        ),
    ]


def share(name: str, values: Iterable[float], goal: tuple[float, float] = COVERAGE_GOAL) -> Figure:
    """Return the share of intervals that hold, in percent, with the goal."""
    percent = 100 * fmean(values)
    low, high = goal
    return Figure(name, percent, "%", f"{low} to {high} %", low <= percent <= high)
