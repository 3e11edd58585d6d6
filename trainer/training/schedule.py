"""How long to train, and at what learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainer.spec import Budget, Config


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning rate of every step and the end of training."""

    config: Config
    budget: Budget
    horizon_steps: int | None
    """Steps over which the cosine decays; None: the budget."""

    @property
    def steps(self) -> int | None:
        """How many are trained; None where only the clock can tell."""
        return self.budget.steps(self.config.tokens_per_step)

    def is_last(self, step: int, elapsed_s: float) -> bool:
        """Whether training ends with ``step`` (1 for the first), done after ``elapsed_s``."""
        if self.steps is None:
            return elapsed_s >= self.budget.amount
        return step >= self.steps

    def lr(self, step: int, elapsed_s: float) -> float:
        """For ``step`` (1 for the first), which begins after ``elapsed_s``.

        Linear warm-up that reaches ``lr`` with the step after ``lr_warmup``, then half a cosine
        down to ``lr × lr_min_ratio`` at the horizon, and constant after it. A budget in seconds
        that is its own horizon decays by the clock.
        """
        config = self.config
        done = step - 1
        if done < config.lr_warmup:
            return config.lr * step / (config.lr_warmup + 1)
        horizon = self.horizon_steps or self.steps
        if horizon is None:
            progress = elapsed_s / self.budget.amount
        elif horizon <= config.lr_warmup:
            progress = 1.0
        else:
            progress = (done - config.lr_warmup) / (horizon - config.lr_warmup)
        cosine = 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
        return config.lr * (config.lr_min_ratio + (1.0 - config.lr_min_ratio) * cosine)
