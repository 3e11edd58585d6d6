"""Choose the configs that get long runs, their seeds and their length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoresearch.errors import CampaignError
from trainer.spec import AnyConfig
from trajectory.ranking import Ranked
from trajectory.rows import StressPurpose


@dataclass(frozen=True, slots=True)
class StressConfig:
    """A config that gets long runs."""

    config: AnyConfig
    config_hash: str
    rank: int
    """Rank among the short runs, 1 the best."""
    purpose: StressPurpose
    in_spread: bool


@dataclass(frozen=True, slots=True)
class StressPlan:
    """A stress test: its runs and their order."""

    steps: int
    seeds: tuple[int, ...]
    configs: tuple[StressConfig, ...]
    """Candidates, the baseline and the rest of the spread; each group by rank."""
    carried: int
    """Number of candidates that get more than the first seed, and largest number of finalists."""

    @classmethod
    def of(
        cls,
        ranked: Sequence[Ranked],
        *,
        top: int,
        spread: int,
        baseline_hash: str | None,
        steps: int,
        seeds: Sequence[int],
        first: int | None = None,
    ) -> StressPlan:
        """
        :param ranked: every measured config, the best first.
        :param first: number of best configs that get the first seed, if more than ``top``.
        :param spread: number of configs that span the ranking; 0 for none.
        :param baseline_hash: the config to compare with; None to leave it out.
        :raises CampaignError: if nothing was measured.
        """
        if not ranked:
            raise CampaignError(
                "nothing was measured in this campaign yet, so there is nothing to stress; "
                "run autoresearch loop first"
            )
        spread_ranks = set(_spread_ranks(len(ranked), spread))
        configs: list[StressConfig] = []
        for rank, entry in enumerate(ranked, start=1):
            purpose: StressPurpose
            if rank <= max(top, first or 0):
                purpose = "candidate"
            elif entry.config_hash == baseline_hash:
                purpose = "baseline"
            elif rank in spread_ranks:
                purpose = "spread"
            else:
                continue
            configs.append(
                StressConfig(entry.config, entry.config_hash, rank, purpose, rank in spread_ranks)
            )
        order: list[StressPurpose] = ["candidate", "baseline", "spread"]
        configs.sort(key=lambda config: (order.index(config.purpose), config.rank))
        candidates = sum(config.purpose == "candidate" for config in configs)
        return cls(steps, tuple(seeds), tuple(configs), carried=min(top, candidates))

    @property
    def candidates(self) -> tuple[str, ...]:
        """Hashes of the candidates, by rank."""
        return tuple(e.config_hash for e in self.configs if e.purpose == "candidate")

    @property
    def narrows(self) -> bool:
        """Whether the first seed decides which configs get the others."""
        return len(self.seeds) > 1 and len(self.candidates) > self.carried

    @property
    def spread(self) -> tuple[str, ...]:
        """Hashes of the configs that span the ranking, by rank."""
        members = sorted((e for e in self.configs if e.in_spread), key=lambda e: e.rank)
        return tuple(config.config_hash for config in members)


def _spread_ranks(configs: int, count: int) -> list[int]:
    """Return ``count`` ranks spread evenly over 1 … configs, both ends included, or all ranks if
    there are fewer."""
    count = min(count, configs)
    if count <= 1:
        return [1][:count]
    return [1 + round(i * (configs - 1) / (count - 1)) for i in range(count)]
