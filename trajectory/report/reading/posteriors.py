"""Posterior means of configs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trajectory import ranking
from trajectory.evidence import Evidence
from trajectory.ranking import Noise, Ranked
from trajectory.statistics.crossed_effects import Measured
from trajectory.statistics.intervals import Estimate, RunNoise
from trajectory.statistics.population import Population


@dataclass(frozen=True)
class Posteriors:
    """Posteriors of any of a campaign's configs, as ``top`` gives them for the best."""

    evidence: Evidence
    noise: Noise | None
    population: Population | None

    @classmethod
    def of(cls, evidence: Evidence) -> Posteriors:
        """Fit the population once."""
        noise = Noise.of(evidence.tally)
        return cls(evidence, noise, ranking.population_of(evidence, noise))

    def best(self, k: int) -> list[Ranked]:
        """Return the ``k`` best configs by posterior mean."""
        return self.of_configs([entry.config_hash for entry in self.evidence.contenders()], k)

    def of_configs(self, hashes: Iterable[str], k: int | None = None) -> list[Ranked]:
        """Return the measured ones of these configs, best first."""
        configs = self.evidence.configs
        entries = [configs[name] for name in hashes]
        return ranking.rank(
            entries,
            len(entries) if k is None else k,
            noise=self.noise,
            population=self.population,
            baseline=configs.get(self.evidence.baseline_hash or ""),
        )


def baseline_estimate(
    baseline: Measured, noise: RunNoise | None, population: Population | None
) -> Estimate:
    """Return the baseline's posterior mean with its interval, as the ranking has it."""
    posterior = ranking.believed(baseline, noise, population, baseline)
    lo, hi = ranking.interval(posterior) or (None, None)
    return Estimate(posterior.mean, lo, hi, baseline.n)
