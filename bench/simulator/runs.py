"""The real runs that a world is made of, wherever they were published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from agent.menu.files import ProxyMenu
from trainer.spec import Config

NEARLY_ALL = 0.9
"""Of the configs: a seed that fewer have is no common one."""


@dataclass(frozen=True, slots=True)
class KnownRun:
    """One run that somebody made."""

    config: Config
    seed: int
    score: float | None
    """None where it failed."""
    train_s: float
    losses: tuple[float, ...] = ()
    """Training loss of each step; empty where none was published."""


@dataclass(frozen=True)
class RunTable:
    """Runs of the configs of one menu, under one budget."""

    name: str
    menu: ProxyMenu
    runs: Sequence[KnownRun]
    shares_seeds: bool
    """Whether equal seeds of different configs mean the same draws."""

    @cached_property
    def configs(self) -> Mapping[str, Config]:
        """By config_hash, in the order first seen."""
        return {run.config.config_hash: run.config for run in self.runs}

    @cached_property
    def scores(self) -> Mapping[str, Mapping[int, list[float]]]:
        """By config_hash and seed, of the runs that ended with one."""
        found: dict[str, dict[int, list[float]]] = {}
        for run in self.runs:
            if run.score is not None:
                of_config = found.setdefault(run.config.config_hash, {})
                of_config.setdefault(run.seed, []).append(run.score)
        return found

    @cached_property
    def means(self) -> Mapping[str, float]:
        """Mean score by config_hash, of those that have one and never failed.

        Where seeds are shared only those count that nearly all have: of cpu-tiny's the first two
        are kind to the baseline and its neighbours by 0.07, and a mean of these beside one of many
        seeds would be that much better for nothing."""
        found = {
            config_hash: [
                score
                for seed, scores in by_seed.items()
                if self._common is None or seed in self._common
                for score in scores
            ]
            for config_hash, by_seed in self.scores.items()
            if config_hash not in self.failed
        }
        return {config_hash: fmean(scores) for config_hash, scores in found.items() if scores}

    @cached_property
    def _common(self) -> frozenset[int] | None:
        """The seeds that nearly all configs have; None where seeds are not shared."""
        if not self.shares_seeds:
            return None
        count = Counter(seed for by_seed in self.scores.values() for seed in by_seed)
        least = NEARLY_ALL * max(count.values(), default=0)
        return frozenset(seed for seed, configs in count.items() if configs >= least)

    @cached_property
    def failed(self) -> frozenset[str]:
        """The config_hashes of those that failed in half of their runs or more."""
        count: dict[str, list[bool]] = {}
        for run in self.runs:
            count.setdefault(run.config.config_hash, []).append(run.score is None)
        return frozenset(key for key, fails in count.items() if 2 * sum(fails) >= len(fails))
