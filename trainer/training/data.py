"""Draw batches by seed, as windows of the train split, and move them to the device."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from autoresearch.errors import CorpusError

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
