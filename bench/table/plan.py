"""Which trials the table is made of.

Blocks, each with a share of everything, so that a table cut short is a smaller one of the same
kind. A block's configs depend on the scores of the blocks before it and on nothing else: stopped
and resumed, the plan is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from statistics import fmean

import torch

from agent.menu.files import ProxyMenu
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from bench.table.store import TableTrial
from trainer.spec import Budget, Config, gpt

BLOCKS = 16
SPACE, NEAR = 50, 50
"""New configs of a block: spread over the whole menu, and neighbours of the best so far."""
REPLICATED, LONG = 13, 5
"""Of a block's new configs: those on four seeds, and those trained long."""
LONG_AGAIN = 16
"""Of all that were trained long: the best of them, on a second seed, for what the order of the best
is worth."""
SHORT_STEPS, LONG_STEPS = 60, 1000
SEEDS = (0, 1)
MORE_SEEDS = (2, 3)
BASELINE_SEEDS = range(2, 24)
"""Further ones of the baseline's: every night begins there, and what it is held against matters."""
ELITES = 24
MAX_CHANGES = 3
_SOBOL_SEED = 20261122


@dataclass(frozen=True, slots=True)
class Job:
    """One trial to be made."""

    role: str
    config: Config
    seed: int
    steps: int

    @property
    def key(self) -> tuple[str, int, int]:
        return self.config.config_hash, self.seed, self.steps


class Plan:
    """The blocks' jobs."""

    def __init__(self, menu: ProxyMenu, budget: Budget) -> None:
        self._menu = menu
        self._budget = budget
        self._spread = self._space_filling()
        self.configs: list[tuple[str, Config]] = [("space", gpt(menu.baseline))]
        """Every config planned so far, in order, with why."""

    def knobs_of(self, config: Config) -> str:
        """A config's knobs as the table keeps them."""
        return json.dumps(self._menu.knob_values(config), separators=(",", ":"))

    def block(self, number: int, known: Mapping[tuple[str, int, int], TableTrial]) -> Iterator[Job]:
        """The new configs of block ``number`` on two seeds; call for 0, 1, 2 … in turn, each once
        all jobs of the ones before are known."""
        new: list[tuple[str, Config]] = [] if number else list(self.configs)
        seen = {config.config_hash for _, config in self.configs}
        for role, count, draw in (
            ("space", SPACE, self._spread),
            ("near", NEAR, self._neighbours(number, known)),
        ):
            fresh = 0
            while fresh < count:
                config = next(draw)
                if config.config_hash not in seen:
                    seen.add(config.config_hash)
                    new.append((role, config))
                    fresh += 1
        self.configs = self.configs + (new if number else new[1:])
        self._new = new
        for role, config in new:
            for seed in SEEDS:
                yield Job(role, config, seed, SHORT_STEPS)

    def second_part(self, known: Mapping[tuple[str, int, int], TableTrial]) -> Iterator[Job]:
        """More seeds and long runs for some of the block's configs, evenly spread over their
        ranks, the best of them included; once the block's jobs are known."""
        baseline = self._menu.baseline
        for role, config in self._new:
            if config.config_hash == baseline.config_hash:
                for seed in BASELINE_SEEDS:
                    yield Job(role, config, seed, SHORT_STEPS)
        ranked = [config for _, config in _ranked(self._new, known)]
        roles = {config.config_hash: role for role, config in self._new}
        for config in _evenly(ranked, LONG):
            yield Job(roles[config.config_hash], config, SEEDS[0], LONG_STEPS)
        for config in _evenly(ranked, REPLICATED):
            if config.config_hash == baseline.config_hash:
                continue  # has them
            for seed in MORE_SEEDS:
                yield Job(roles[config.config_hash], config, seed, SHORT_STEPS)

    def third_part(self, known: Mapping[tuple[str, int, int], TableTrial]) -> Iterator[Job]:
        """The best of the long runs on another seed; once all blocks are known."""
        long = {
            config_hash: trial.val_bpb
            for (config_hash, seed, steps), trial in known.items()
            if (seed, steps) == (SEEDS[0], LONG_STEPS) and trial.val_bpb is not None
        }
        best = sorted(long, key=lambda one: long[one])[:LONG_AGAIN]
        configs = {config.config_hash: (role, config) for role, config in self.configs}
        for role, config in (configs[one] for one in best):
            yield Job(role, config, SEEDS[1], LONG_STEPS)

    def _space_filling(self) -> Iterator[Config]:
        """Scrambled Sobol points over all knobs, those that can be trained."""
        domains = self._menu.domains
        count = len(domains)
        sobol = torch.quasirandom.SobolEngine(  # type: ignore[no-untyped-call]
            count, scramble=True, seed=_SOBOL_SEED
        )
        while True:
            point = sobol.draw(1)[0].tolist()
            places = zip(domains.items(), point, strict=True)
            values = {name: domain.rounded(domain.at(u)) for (name, domain), u in places}
            yield from self._trainable(gpt(self._menu.baseline), values)

    def _neighbours(
        self, number: int, known: Mapping[tuple[str, int, int], TableTrial]
    ) -> Iterator[Config]:
        """Edits of one to three knobs of the best configs of the earlier blocks."""
        rng = Random(f"near:{number}")
        ranked = [config for _, config in _ranked(self.configs, known)] if number else []
        elites = ranked[:ELITES] or [gpt(self._menu.baseline)]
        domains = self._menu.domains
        while True:
            names = rng.sample(list(domains), rng.randint(1, MAX_CHANGES))
            values = {name: domains[name].rounded(domains[name].draw(rng)) for name in names}
            yield from self._trainable(rng.choice(elites), values)

    def _trainable(self, origin: Config, values: dict[str, Scalar]) -> Iterator[Config]:
        try:
            config = gpt(self._menu.apply(origin, values))
        except SpecError:
            return
        if self._menu.broken_constraint(config, self._budget) is None:
            yield config


def _ranked(
    configs: list[tuple[str, Config]], known: Mapping[tuple[str, int, int], TableTrial]
) -> list[tuple[float, Config]]:
    """Those with a score on both seeds, best first."""
    scored = []
    for _, config in configs:
        trials = [known.get((config.config_hash, seed, SHORT_STEPS)) for seed in SEEDS]
        scores = [trial.val_bpb for trial in trials if trial and trial.val_bpb is not None]
        if len(scores) == len(SEEDS):
            scored.append((fmean(scores), config))
    return sorted(scored, key=lambda pair: pair[0])


def _evenly(ranked: list[Config], count: int) -> list[Config]:
    """``count`` of them at even distances, first and last included."""
    if len(ranked) <= count:
        return ranked
    return [ranked[round(i * (len(ranked) - 1) / (count - 1))] for i in range(count)]
