"""The search from its first iteration to its last, and what it found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trajectory import ranking
from trajectory.evidence import Evidence
from trajectory.ranking import Noise, Ranked
from trajectory.report.reading.ledger import Ledger
from trajectory.report.reading.turns import Outcome, Turn
from trajectory.report.statistics import Estimate, RunNoise, of_runs
from trajectory.statistics.crossed_effects import Measured
from trajectory.statistics.population import Population


@dataclass(frozen=True, slots=True)
class Point:
    """One iteration's candidate."""

    iter: int
    outcome: Outcome
    score: Estimate | None
    """Mean val_bpb over its seeds; None where nothing was measured."""


@dataclass(frozen=True, slots=True)
class Step:
    """The incumbent from iteration ``first`` to ``last``.

    Its score is what it is believed to score by now, from all of its runs: the score it was kept
    with is the luckier, the more candidates there were to choose from.
    """

    first: int
    last: int
    config_hash: str
    believed: float
    """Posterior mean."""


@dataclass(frozen=True, slots=True)
class Progress:
    """val_bpb by iteration."""

    points: tuple[Point, ...]
    steps: tuple[Step, ...]
    baseline: Estimate | None
    """As believed, with its 95 % interval: what ``top`` says of it."""
    one_run_half: float | None
    """Half the band about the baseline in which 95 of 100 of its single runs would fall, from its
    own spread."""


@dataclass(frozen=True)
class Standings:
    """Posteriors of any of a campaign's configs, as ``top`` gives them for the best."""

    evidence: Evidence
    noise: Noise | None
    population: Population | None

    @classmethod
    def of(cls, evidence: Evidence) -> Standings:
        """Fit the population once."""
        noise = Noise.of(evidence.tally)
        return cls(evidence, noise, ranking.population_of(evidence, noise))

    def best(self, k: int) -> list[Ranked]:
        """The ``k`` best by posterior mean."""
        return self.of_configs(self.evidence.configs, k)

    def of_configs(self, hashes: Iterable[str], k: int | None = None) -> list[Ranked]:
        """The measured ones of these, best first."""
        configs = self.evidence.configs
        entries = [configs[name] for name in hashes]
        return ranking.rank(
            entries,
            len(entries) if k is None else k,
            noise=self.noise,
            population=self.population,
            baseline=configs.get(self.evidence.baseline_hash or ""),
        )


def progress(ledger: Ledger, standings: Standings) -> Progress:
    """Of all iterations so far."""
    noise, population = standings.noise, standings.population
    entry = ledger.evidence.configs.get(ledger.evidence.baseline_hash or "")
    baseline = entry if entry is not None and entry.n else None
    return Progress(
        points=tuple(point(turn, noise) for turn in ledger.turns),
        steps=tuple(_steps(ledger, standings)),
        baseline=baseline_estimate(baseline, noise, population) if baseline else None,
        one_run_half=ranking.baseline_run(baseline, noise, population) if baseline else None,
    )


def baseline_estimate(
    baseline: Measured, noise: RunNoise | None, population: Population | None
) -> Estimate:
    """What the ranking says of the baseline."""
    posterior = ranking.believed(baseline, noise, population, baseline)
    lo, hi = ranking.interval(posterior) or (None, None)
    return Estimate(posterior.mean, lo, hi, baseline.n)


def point(turn: Turn, noise: RunNoise | None) -> Point:
    """An iteration's place in the picture."""
    score = None if turn.mean is None else of_runs(turn.mean, turn.runs, noise)
    return Point(turn.iter, turn.outcome, score)


def _steps(ledger: Ledger, standings: Standings) -> Iterable[Step]:
    reigns = ledger.reigns
    ranked = {
        entry.config_hash: entry
        for entry in standings.of_configs({reign.config_hash for reign in reigns})
    }
    last = ledger.turns[-1].iter if ledger.turns else 0
    for place, reign in enumerate(reigns):
        end = reigns[place + 1].iter if place + 1 < len(reigns) else last
        if reign.config_hash in ranked:
            believed = ranked[reign.config_hash].posterior_bpb
            yield Step(reign.iter, end, reign.config_hash, believed)
