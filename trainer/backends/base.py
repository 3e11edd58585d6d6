"""What a backend is: something that turns a Config into a model that scores tokens."""

from __future__ import annotations

from typing import Protocol

import torch

from trainer.spec import Config


class Backend(Protocol):
    """The seam where another implementation of the same recipe plugs in."""

    name: str
    """As results report it."""

    def check(self, config: Config, device: torch.device) -> None:
        """Refuse, before anything is built, what this backend cannot train.

        :raises SpecError: with what to change.
        :raises MachineryError: where packages that it needs are missing or do not go together.
        """
        ...

    def build(self, config: Config, vocab_size: int, device: torch.device) -> torch.nn.Module:
        """A freshly initialised model, its weights drawn from torch's generator of ``device``.

        Called as ``model(tokens_BT, targets_BT)``, both int64. After ``model.train()`` it returns
        the mean negative log-likelihood of the targets in nats, an fp32 scalar, to be
        differentiated once: so it need not keep the logits until then. After ``model.eval()`` it
        returns ``nll_BT``, each target's, in fp64: whatever precision its logits are computed in,
        log-softmax is fp64, so that the held-out number is that of its logits to nine digits. No
        more than :data:`trainer.memory.chunks.EXACT_LOGITS_AT_ONCE` of them are fp64 at once. (On
        CUDA its exponentials may be fp32, whose errors cancel to eight digits.) T may be shorter
        than the config's. A model that never holds the logits of all tokens says ``chunks_logits``.
        The first loss is near ln(vocab_size). Every parameter gets a gradient, is a matrix exactly
        where it has more than one dimension, and is fp32 unless the model brings its own optimizer
        (:class:`trainer.backends.optimizer.BringsOptimizer`)."""
        ...
