"""Build small models of the torch backend, and batches and gradients for them."""

from typing import Any

import torch
from torch import Tensor

from tests.support.configs import config
from trainer.backends.torch_gpt import TorchBackend, TorchGPT
from trainer.schema import Config

CPU = torch.device("cpu")
VOCAB = 257
SMALL = {"n_layer": 2, "n_head": 4, "d_model": 32, "d_ff": 48, "seq_len": 16, "batch_size": 4}


def recipe(**changes: Any) -> Config:
    """Return a small config in fp32, with these changes."""
    return config(**{**SMALL, "precision": "fp32", **changes})


def build(kernels: bool = False, vocab_size: int = VOCAB, **changes: Any) -> TorchGPT:
    """Return the model of :func:`recipe`, always with the same weights."""
    torch.manual_seed(0)
    backend = TorchBackend(kernels=kernels)
    return backend.build(recipe(**changes), vocab_size, CPU).train()


@torch.no_grad()
def stirred(model: TorchGPT) -> TorchGPT:
    """Move a model far from its start, where attention is almost a mean and gains are 1."""
    torch.manual_seed(4)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.uniform_(0.5, 1.5)
        else:
            parameter.mul_(12 if name.endswith("qkv_RD") else 5)
    return model


def batch(seed: int = 1, rows: int = 4, length: int = 16) -> tuple[Tensor, Tensor]:
    """Return random tokens and targets."""
    generator = torch.Generator().manual_seed(seed)
    stream_BT = torch.randint(VOCAB, (rows, length + 1), generator=generator)
    return stream_BT[:, :-1], stream_BT[:, 1:]


def gradients(model: TorchGPT) -> tuple[float, dict[str, Tensor]]:
    """Return a step's loss, and the gradient of every parameter."""
    loss = model(*batch())
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert found.keys() == dict(model.named_parameters()).keys()
    return loss.item(), found
