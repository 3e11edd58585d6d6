"""A made-up objective over the shipped cpu-tiny menu, which is fast and not based on measurements.

A wrong learning rate costs up to a bit per byte, and the optimum depends on width. Most other
choices differ by less than the noise of one run, and too bold recipes diverge. No trial has a
curve.
"""

import math
from random import Random

from agent.menu.files import load_menu
from tests.support.simulated.world import Run, World
from trainer.schema import Config

SIGMA = 0.056
"""Sd of one run, measured on a proxy of 60 steps."""


class MadeUpWorld(World):
    """The world of the made-up objective."""

    def __init__(self) -> None:
        self.name = "made-up"
        self.menu = load_menu("cpu-tiny")

    @property
    def best(self) -> float:
        """Return the least objective that the menu allows: every other term's minimum at d_model
        192, the widest of four blocks with SwiGLU."""
        return 3.2 - 0.04 * math.log2(192 / 128) - 0.08 - 0.03 - 0.01

    def truth(self, config: Config) -> float | None:
        """Return the objective; None if training diverges."""
        best_lr = 6e-3 * math.sqrt(128 / config.d_model)
        off = math.log10(config.lr / best_lr)
        if off > 0.4 and config.n_layer >= 5 and config.grad_clip > 2:
            return None
        return (
            3.2
            + 0.35 * off * off * (1.6 if off > 0 else 1.0)
            - 0.10 * math.log2(config.tokens_per_step / 1024)
            - 0.04 * math.log2(config.d_model / 128)
            + 0.015 * (config.n_layer - 4) ** 2
            - 0.08 * (config.positions == "rotary")
            - 0.03 * (config.activation == "swiglu")
            - 0.01 * (config.norm == "rmsnorm")
            + 0.02 * (not config.tie_embeddings)
            + 0.08 * ((config.lr_warmup - 6) / 20) ** 2
            + 1.5 * (config.beta2 - 0.96) ** 2
            + 0.8 * (config.beta1 - 0.88) ** 2
            + 0.05 * abs(math.log10(config.grad_clip))
            + 0.2 * (config.weight_decay - 0.1) ** 2
        )

    def run(self, config: Config, seed: int) -> Run:
        """Return a run with Gaussian noise that is independent for each config and seed."""
        truth = self.truth(config)
        if truth is None:
            return Run(train_s=1.0, score=None)
        return Run(1.0, truth + Random(f"{config.config_hash}:{seed}").gauss(0, SIGMA))
