"""The length of training, and the learning rate and the batch of each step."""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from autoresearch.errors import CorpusError
from trainer.backends.coded import schedule_factor
from trainer.schema import Budget, Config


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning rate of every step and the end of training."""

    config: Config
    budget: Budget
    horizon_steps: int | None
    """Steps over which the rate decays; None: the budget."""
    cooldown_steps: int = 0
    """Number of last steps over which the rate falls to 0; the budget must then count steps."""

    @property
    def steps(self) -> int | None:
        """Return how many steps are trained; None if only the clock decides."""
        return self.budget.steps(self.config.tokens_per_step)

    def is_last(self, step: int, elapsed_s: float) -> bool:
        """Return whether training ends with ``step`` (the first is 1), done after ``elapsed_s``."""
        if self.steps is None:
            return elapsed_s >= self.budget.amount
        return step >= self.steps

    def lr(self, step: int, elapsed_s: float) -> float:
        """Return the rate for ``step`` (1 for the first), which begins after ``elapsed_s``.

        A linear warm-up reaches ``lr`` with the step after ``lr_warmup``. Then the rate falls to
        ``lr × lr_min_ratio`` at the horizon and stays there. It falls as half a cosine, as a
        straight line, or as ``wsd``. The last stays at ``lr`` until the last ``decay_share`` of the
        horizon (but at least to the end of the warm-up) and is a straight line there. A budget
        in seconds that is its own horizon decays by the clock. Over the last ``cooldown_steps`` the
        rate is also multiplied by a straight line that reaches 0 with the step after the last.
        """
        rate = self._scheduled(step, elapsed_s)
        if not self.cooldown_steps or self.steps is None:
            return rate
        left = self.steps - step + 1
        return rate * min(1.0, left / (self.cooldown_steps + 1))

    def _scheduled(self, step: int, elapsed_s: float) -> float:
        """Return the rate without the cooldown."""
        config = self.config
        done, horizon, is_wsd = step - 1, self.horizon_steps or self.steps, config.schedule == "wsd"
        if (factor := schedule_factor(config)) is not None:
            if horizon is None:  # as many as the budget's seconds would have at the present rate
                rate = done / elapsed_s if elapsed_s > 0 else 0.0
                horizon = max(step, round(rate * self.budget.amount))
            return config.lr * factor(step, horizon)
        if done < config.lr_warmup:
            return config.lr * step / (config.lr_warmup + 1)
        share = config.decay_share
        # 0 at the start of the decay, below 0 before it, 1 at the horizon.
        if horizon is None:
            progress = elapsed_s / self.budget.amount
            progress = (progress - (1.0 - share)) / share if is_wsd else progress
        else:
            begin = max(float(config.lr_warmup), horizon * (1.0 - share) if is_wsd else 0.0)
            progress = 1.0 if horizon <= begin else (done - begin) / (horizon - begin)
        progress = min(progress, 1.0)
        if config.schedule == "cosine":
            left = 0.5 * (1.0 + math.cos(math.pi * progress))
        else:
            left = 1.0 - max(progress, 0.0)
        return config.lr * (config.lr_min_ratio + (1.0 - config.lr_min_ratio) * left)


Tokens: TypeAlias = np.ndarray[tuple[int], np.dtype[Any]]
"""A token stream, which may be a memory map."""


class Batches:
    """The batch of every step, a function of (seed, step, batch_size, seq_len) alone.

    Each step draws the relative starts of its sequences from its own generator. So any step can be
    made without the steps before it, and every position of the split is equally likely. With one
    seed, the sequences of a smaller batch start where the first sequences of a larger one do.
    """

    def __init__(
        self, tokens: Tokens, *, seed: int, batch_size: int, seq_len: int, device: torch.device
    ) -> None:
        """:raises CorpusError: if the split is shorter than one sequence and its last target."""
        self._tokens = np.asarray(tokens)  # indexing a memory map directly is three times slower
        self._seed = seed
        self._batch_size = batch_size
        self._starts = len(tokens) - seq_len
        self._offsets = np.arange(seq_len + 1)
        self._device = device
        if self._starts < 1:
            raise CorpusError(
                f"the train split has {len(tokens)} tokens, too few for a sequence of {seq_len}"
                " and its last target; choose a larger corpus or a smaller seq_len"
            )

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """Return ``tokens_BT`` and ``targets_BT``, int64, on the device; ``step`` counts from 1.

        On CUDA the copy is asynchronous. It costs no time if the device still works on the previous
        step.
        """
        draw = np.random.default_rng((self._seed, step)).random(self._batch_size)
        starts_B = (draw * self._starts).astype(np.int64)
        window = self._tokens[starts_B[:, None] + self._offsets]
        window_BT1 = to_device(torch.from_numpy(window.astype(np.int64)), self._device)
        return window_BT1[:, :-1].contiguous(), window_BT1[:, 1:].contiguous()


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a host tensor to ``device``, through pinned memory so that the host does not wait."""
    if device.type != "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
