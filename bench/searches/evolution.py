"""Evolution: CatCMA with margin (Hamano et al. 2025, arXiv 2504.07884) of the library ``cmaes``,
over numbers, counted values and words at once.

The strategy keeps a state from one generation to the next, and a proposer here may know nothing but
the memory. So the state is had again from the memory: the candidates of earlier iterations are
drawn as they were then and told with what was measured. That bounds an epoch: after
:data:`GENERATIONS` a new one begins about the config that was kept last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from cmaes import CatCMAwM

from agent.menu.files import ProxyMenu
from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import Draw, against_reference, offered
from agent.proposers.surrogate.scales import share
from autoresearch.domains.base import Domain
from autoresearch.domains.choices import Choices, Ladder
from autoresearch.domains.ranges import WholeRange
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from trainer.spec import AnyConfig
from trajectory.evidence import ConfigEvidence

GENERATIONS = 16
SIGMA = 0.2
"""The first standard deviation, as a share of each knob's domain."""
STAYS = 0.7
"""The first chance of a word to be the one it is."""
DRAWS = 40
"""Of one iteration, at most."""
MOST_COUNTED = 40
"""Values that are counted; a domain of more is as good as a range of real numbers."""


@dataclass(frozen=True, slots=True)
class Axes:
    """A menu's knobs as the strategy sees them: each number by its share of its domain."""

    domains: dict[str, Domain]
    real: tuple[str, ...]
    counted: dict[str, tuple[float, ...]]
    """The shares of a domain's values, ascending."""
    words: dict[str, tuple[Scalar, ...]]

    @classmethod
    def of(cls, menu: ProxyMenu) -> Axes:
        domains = dict(menu.domains)
        words = {
            name: tuple(domain.choices)
            for name, domain in domains.items()
            if isinstance(domain, Choices)
            and (not isinstance(domain, Ladder) or len(domain.choices) == 2)
        }
        counted = {
            name: shares
            for name, domain in domains.items()
            if name not in words and len(shares := _counted(domain)) > 2
        }
        real = tuple(name for name in domains if name not in words and name not in counted)
        return cls(domains, real, counted, words)

    def strategy(self, now: dict[str, Scalar], seed: int) -> CatCMAwM:
        """One that begins about these values."""
        most = max((len(values) for values in self.words.values()), default=0)
        chances = np.zeros((len(self.words), most))
        for row, (name, values) in zip(chances, self.words.items(), strict=True):
            row[: len(values)] = (1 - STAYS) / (len(values) - 1)
            row[values.index(now[name])] = STAYS
        numbers = [*self.real, *self.counted]
        return CatCMAwM(
            x_space=[[0.0, 1.0]] * len(self.real) or None,
            z_space=[list(shares) for shares in self.counted.values()] or None,
            c_space=[len(values) for values in self.words.values()] or None,
            mean=np.array([share(self.domains[name], now[name]) for name in numbers]),
            sigma=SIGMA,
            # As the library has it, it is the narrower the nearer a bound, and zero on it.
            cov=np.eye(len(numbers)),
            cat_param=chances if self.words else None,
            seed=seed,
        )

    def values(self, solution: Any) -> dict[str, Scalar]:
        """What a solution sets the knobs to."""
        numbers = dict(zip(self.real, solution.x, strict=True)) if self.real else {}
        if self.counted:
            numbers |= dict(zip(self.counted, solution.z, strict=True))
        said = {name: _at(self.domains[name], float(at)) for name, at in numbers.items()}
        for row, (name, values) in zip(
            solution.c if self.words else (), self.words.items(), strict=True
        ):
            said[name] = values[int(np.argmax(row))]
        return {name: self.domains[name].normal(said[name]) for name in self.domains}


class EvolutionProposer:
    """A generation's next candidate; all knobs may be turned at once."""

    def __init__(self, rails: Rails) -> None:
        self._rails = rails
        self._axes = Axes.of(rails.menu)
        self._kept: tuple[tuple[int, int], CatCMAwM] | None = None
        """The latest epoch's strategy, which would be the same if it were made anew."""

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        return offered("evolution", self._rails, memory, lambda _rng: self._draws(memory), DRAWS)

    def _draws(self, memory: Memory) -> Iterator[Draw]:
        strategy = self._as_it_stands(memory)
        for values in self._asked(strategy, memory, memory.iter):
            yield Draw(against_reference(memory, values[1]), f"generation {strategy.generation}")

    def _as_it_stands(self, memory: Memory) -> CatCMAwM:
        """The strategy after what was measured since its epoch began."""
        probe = self._axes.strategy(self._values(memory, memory.menu.baseline), 1)
        size = probe.population_size
        epoch, done = divmod((memory.iter - 1) // size, GENERATIONS)
        first = epoch * GENERATIONS * size + 1
        strategy = self._begun(memory, epoch, first, done)
        by_iter = {entry.iter: entry for entry in memory.evidence.configs.values()}
        for number in range(strategy.generation, done):
            begin = first + number * size
            strategy.tell(
                [
                    (self._found(strategy, memory, iteration, by_iter.get(iteration)), score)
                    for iteration in range(begin, begin + size)
                    for score in [_score(by_iter.get(iteration))]
                ]
            )
        return strategy

    def _begun(self, memory: Memory, epoch: int, first: int, done: int) -> CatCMAwM:
        """The epoch's strategy, as far as it is known; it begins about what was kept last."""
        if self._kept is not None:
            key, kept = self._kept
            if key == (memory.seed, epoch) and kept.generation <= done:
                return kept
        start = max(
            (
                entry
                for entry in memory.evidence.configs.values()
                if entry.iter < first and (entry.action == "keep" or not entry.iter)
            ),
            key=lambda entry: entry.iter,
        )
        strategy = self._axes.strategy(self._values(memory, start.config), epoch + 1)
        self._kept = (memory.seed, epoch), strategy
        return strategy

    def _asked(
        self, strategy: CatCMAwM, memory: Memory, iteration: int
    ) -> Iterator[tuple[Any, dict[str, Scalar]]]:
        """The draws of an iteration, the same however often they are drawn."""
        strategy.reseed_rng(Random(f"evolution:{memory.seed}:{iteration}").getrandbits(32))
        for _ in range(DRAWS):
            solution = strategy.ask()
            yield solution, self._axes.values(solution)

    def _found(
        self, strategy: CatCMAwM, memory: Memory, iteration: int, entry: ConfigEvidence | None
    ) -> Any:
        """The draw that became that iteration's candidate; the first where it was chance."""
        first = None
        for solution, values in self._asked(strategy, memory, iteration):
            first = first or solution
            if entry is None:
                break
            try:
                config = memory.menu.apply(memory.reference, values)
            except SpecError:
                continue
            if config.config_hash == entry.config_hash:
                return solution
        return first

    def _values(self, memory: Memory, config: AnyConfig) -> dict[str, Scalar]:
        return dict(memory.menu.knob_values(config))


def _score(entry: ConfigEvidence | None) -> float:
    """What was measured; a candidate without a score is behind all others, as ranks have it."""
    if entry is None or entry.failures or not entry.scores:
        return math.inf
    return entry.mean


def _counted(domain: Domain) -> tuple[float, ...]:
    """The shares of its values, where they are few enough to count."""
    if isinstance(domain, Ladder):
        return tuple((place + 0.5) / len(domain.choices) for place in range(len(domain.choices)))
    if isinstance(domain, WholeRange):
        values = range(int(domain.low), int(domain.high) + 1, int(domain.step))
        if len(values) <= MOST_COUNTED:
            return tuple(share(domain, value) for value in values)
    return ()


def _at(domain: Domain, place: float) -> Scalar:
    """The value at a share of an ordered domain."""
    if isinstance(domain, Ladder):
        ladder = sorted(domain.choices)
        return ladder[min(int(place * len(ladder)), len(ladder) - 1)]
    return domain.rounded(domain.at(min(max(place, 0.0), 1.0)))
