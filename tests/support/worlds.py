"""Provide worlds that are small enough to know completely."""

import math
from random import Random

from agent.menu.files import load_menu
from tests.support.simulated.world import Run, World
from trainer.schema import Config

STEPS = 60


class RateWorld(World):
    """A world of one learning rate: 1e-2 is best, and nothing trains from 2e-2 on."""

    def __init__(self, sigma: float = 0.0, *, curves: bool = False) -> None:
        self.name = "rate"
        self.menu = load_menu("cpu-tiny")
        self.failure_s = 0.25
        self._sigma = sigma
        self._curves = curves

    @property
    def best(self) -> float:
        return 3.0

    def truth(self, config: Config) -> float | None:
        return None if config.lr >= 2e-2 else 3.0 + abs(math.log10(config.lr / 1e-2))

    def run(self, config: Config, seed: int) -> Run:
        truth = self.truth(config)
        if truth is None:
            return Run(1.0, None)
        score = truth + Random(f"{config.config_hash}:{seed}").gauss(0, self._sigma)
        if not self._curves:
            return Run(2.0, score)
        return Run(
            2.0, score, [score + (7 - score) * math.exp(-n / 8) for n in range(1, STEPS + 1)]
        )
