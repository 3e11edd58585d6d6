"""Measure what the luck of the baseline's first run decides, by the rule and by the former one.

The former rule compared runs in pairs whatever seeds share, on the same first seed in every race,
and its bar was 1.3 standard errors.
Both run in worlds where a seed explains nothing, half, or nearly all of a run's variance:

- **kept gains**: ideas worth one sd of a run, or nothing, race against the baseline, which stays.
- **true gain**: of whole campaigns of 205 runs.

The baselines are sorted by the luck of seed 0: its run less the mean of the baseline's runs. The
luckiest fifth of the baselines may lose at most a tenth of what all have.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from agent.search.race import Race
from bench.figure import Figure
from bench.judge_honesty import RUNS
from bench.judge_nights import Night, nights_of
from bench.judge_worlds import SIGMA, World, shared_seeds
from trajectory.ranking import Noise
from trajectory.rows import Rules

SHARES = (0.0, 0.5, 0.95)
PROBED = 400
RACES = 40
CAMPAIGNS = 200
MOST_LOST = 0.1
FORMER = Rules(z_keep=1.3)


class _Paired(Noise):
    """Noise of runs of which the seed explains everything."""

    shared = 1.0


class PairedRace(Race):
    """A race by the former rule."""

    def seeds(self) -> list[int]:
        return list(range(self.first_seed, self.first_seed + 2 * self.rules.max_runs))

    def noise(self) -> Noise:
        known = super().noise()
        return _Paired(known.sigma, known.dof, known.sigma_d)


class PairedNight(Night):
    """A campaign by the former rule."""

    race_kind = PairedRace


class ProbedNight(Night):
    """A campaign in which every idea races against the baseline."""

    @property
    def incumbent(self) -> str:
        return self.evidence.baseline_hash or ""


class PairedProbedNight(ProbedNight, PairedNight):
    """Such a campaign by the former rule."""


def run() -> list[Figure]:
    """Return all figures, world by world, the former rule first."""
    figures = []
    for share in SHARES:
        world, where = shared_seeds(share), f"seeds explain {100 * share:.0f} %"
        before, now = f"{where}, former rule", f"{where}, rule"
        figures += _probes(before, world, PairedProbedNight, FORMER, has_goal=False)
        figures += _campaigns(before, world, PairedNight, FORMER, has_goal=False)
        figures += _probes(now, world, ProbedNight, Rules(), has_goal=True)
        figures += _campaigns(now, world, Night, Rules(), has_goal=True)
    return figures


def _probes(
    where: str, world: World, kind: type[Night], rules: Rules, *, has_goal: bool
) -> list[Figure]:
    def half_gain(rng: random.Random) -> float:
        return rng.choice((0.0, SIGMA))

    ended = list(
        nights_of(
            kind,
            replace(world, gain=half_gain),
            rules,
            range(PROBED),
            lambda night: night.evidence.iterations >= RACES,
        )
    )

    def kept(night: Night) -> float:
        return 100 * (night.keeps - night.nulls_kept) / (night.evidence.iterations - night.nulls)

    false = 100 * sum(night.nulls_kept for night in ended) / sum(night.nulls for night in ended)
    return [
        *_by_luck(f"kept gains of one sd ({where})", "%", ended, kept, has_goal=has_goal),
        Figure(f"kept ideas worth nothing ({where})", false, "%", note=f"{PROBED} baselines"),
    ]


def _campaigns(
    where: str, world: World, kind: type[Night], rules: Rules, *, has_goal: bool
) -> list[Figure]:
    ended = list(nights_of(kind, world, rules, range(CAMPAIGNS), lambda night: night.runs >= RUNS))
    keeps = sum(night.keeps for night in ended)
    false = 100 * sum(night.false_keeps for night in ended) / keeps
    gain = _by_luck(
        f"true gain at {RUNS} runs ({where})",
        "bpb",
        ended,
        lambda night: night.true_gain,
        has_goal=has_goal,
    )
    return [*gain, Figure(f"keeps that gained nothing ({where})", false, "%")]


def _by_luck(
    name: str,
    unit: str,
    ended: Sequence[Night],
    value: Callable[[Night], float],
    *,
    has_goal: bool,
) -> list[Figure]:
    """Return the mean over all campaigns, and over those with the luckiest fifth of baselines."""
    fifth = sorted(ended, key=_luck)[: len(ended) // 5]
    every, worst = fmean(map(value, ended)), fmean(map(value, fifth))
    goal = met = None
    if has_goal:
        goal = f"at least {100 * (1 - MOST_LOST):.0f} % of all"
        met = worst >= (1 - MOST_LOST) * every
    return [
        Figure(name, every, unit, note=f"{len(ended)} baselines"),
        Figure(f"of the luckiest fifth ({name})", worst, unit, goal, met),
    ]


def _luck(night: Night) -> float:
    baseline = night.evidence.configs[night.evidence.baseline_hash or ""]
    return baseline.scores[0] - fmean(baseline.scores[seed] for seed in range(5))
