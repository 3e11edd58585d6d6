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

        Called as ``model(tokens_BT, targets_BT)``, both int64, it returns ``nll_BT``: the negative
        log-likelihood of each target in nats, whatever precision it computes its logits in. After
        ``model.train()`` that is fp32; after ``model.eval()`` log-softmax is fp64, so that the
        held-out number is that of its logits to nine digits. T may be shorter than the config's.
        The first mean is near ln(vocab_size). Every parameter is fp32, gets a gradient, and is a
        matrix exactly where it has more than one dimension.
        """
        ...
