"""Backends, which turn a Config into a model that scores tokens: their interface and choice."""

from collections.abc import Callable
from typing import Protocol

import torch

from autoresearch.errors import SpecError
from trainer.backends.megatron import MegatronBackend
from trainer.backends.torch_gpt import TorchBackend
from trainer.schema import BackendName, Config


class Backend(Protocol):
    """The interface for implementations of the same recipe."""

    name: str
    """The name that results report."""

    def check(self, config: Config, device: torch.device) -> None:
        """Check, before anything is built, that this backend can train the config on the device.

        :raises SpecError: if it cannot; the message says what to change.
        :raises MachineryError: if packages that it needs are missing or incompatible.
        """

    def build(self, config: Config, vocab_size: int, device: torch.device) -> torch.nn.Module:
        """Return a new model, its weights drawn from torch's generator of ``device``.

        The model is called as ``model(tokens_BT, targets_BT)``, both int64; T may be shorter than
        the config's. After ``model.train()`` it returns the targets' mean negative log-likelihood
        in nats, an fp32 scalar. It is differentiated once, so the model need not keep the logits.

        After ``model.eval()`` it returns ``nll_BT``, each target's, in fp64. Log-softmax is fp64
        whatever the precision of the logits, so that the held-out number is exact to nine digits.
        (On CUDA its exponentials may be fp32, whose errors cancel to eight digits.) At most
        :data:`trainer.memory.parts.EXACT_LOGITS_AT_ONCE` logits are fp64 at once. A model that
        never holds the logits of all tokens sets ``chunks_logits``.

        The first loss is near ln(vocab_size). Every parameter gets a gradient. It is a matrix
        exactly if it has more than one dimension, and is fp32 unless the model brings its own
        optimizer (:class:`trainer.backends.optimizer.BringsOptimizer`).
        """


__all__ = ["BACKENDS", "Backend", "choose_backend"]

BACKENDS: dict[BackendName, Callable[[], Backend]] = {
    "torch": TorchBackend,
    "megatron": MegatronBackend,
}


def choose_backend(name: BackendName) -> Backend:
    """Return the backend that a TrialSpec names.

    :raises SpecError: if there is no such backend.
    """
    if name not in BACKENDS:
        raise SpecError(f"there is no backend {name!r}; choose one of {', '.join(BACKENDS)}")
    return BACKENDS[name]()
