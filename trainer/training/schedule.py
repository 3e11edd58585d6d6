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
    """Steps over which the rate decays; None: the budget."""
    cooldown_steps: int = 0
    """Last steps of the budget, which then counts them, over which the rate goes to nothing."""

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

        Linear warm-up that reaches ``lr`` with the step after ``lr_warmup``, then the schedule's
        form down to ``lr × lr_min_ratio`` at the horizon, and constant after it: half a cosine, a
        straight line, or ``wsd``, which stays at ``lr`` until the last ``decay_share`` of the
        horizon (from the end of the warm-up at the earliest) and is a straight line there. A budget
        in seconds that is its own horizon decays by the clock. Over the last ``cooldown_steps`` all
        that is multiplied by a straight line, which reaches 0 with the step after the last.
        """
        rate = self._scheduled(step, elapsed_s)
        if not self.cooldown_steps or self.steps is None:
            return rate
        left = self.steps - step + 1
        return rate * min(1.0, left / (self.cooldown_steps + 1))

    def _scheduled(self, step: int, elapsed_s: float) -> float:
        """The rate without the cooldown."""
        config = self.config
        done = step - 1
        if done < config.lr_warmup:
            return config.lr * step / (config.lr_warmup + 1)
        left = self._left(min(self._progress(done, elapsed_s), 1.0))
        return config.lr * (config.lr_min_ratio + (1.0 - config.lr_min_ratio) * left)

    def _progress(self, done: int, elapsed_s: float) -> float:
        """Of the fall: 0 where it begins, below that before, 1 at the horizon."""
        config, share = self.config, self.config.decay_share
        horizon = self.horizon_steps or self.steps
        if horizon is None:
            progress = elapsed_s / self.budget.amount
            return (progress - (1.0 - share)) / share if config.schedule == "wsd" else progress
        begin: float = config.lr_warmup
        if config.schedule == "wsd":
            begin = max(begin, horizon * (1.0 - share))
        return 1.0 if horizon <= begin else (done - begin) / (horizon - begin)

    def _left(self, progress: float) -> float:
        """Of the way between the two rates."""
        if self.config.schedule == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * progress))
        return 1.0 - max(progress, 0.0)
