"""Count one training step of the torch backend's own code on the meta device."""

from __future__ import annotations

import torch

from trainer.accounting.counter import Counter
from trainer.accounting.work import StepCounts
from trainer.backends.optimizer import optimizer_of
from trainer.backends.products import check_shapes
from trainer.backends.torch_gpt import TorchGPT
from trainer.spec import Config

META = torch.device("meta")


def count_step(config: Config, vocab_size: int, *, kernels: bool = True) -> StepCounts:
    """Count forward, backward, clipping and AdamW of ``config``, as the torch backend does them on
    CUDA.

    The step is uncompiled. The second step is counted, so that whatever the first one creates and
    keeps already exists.

    :param kernels: with the backend's own kernels; without, as if Triton were missing.
    :raises SpecError: on shapes that the precision does not support.
    """
    if config.precision == "fp8":
        check_shapes(config)
    counter = Counter()
    with counter.watching():
        model = TorchGPT(config, vocab_size, META, kernels=kernels)
        model.init()
        model.train()
        counter.head_weight(model.head_VD)
        optimizer = optimizer_of(model, config)
        shape = (config.batch_size, config.seq_len)
        tokens_BT, targets_BT = (torch.empty(shape, dtype=torch.int64, device=META) for _ in "ab")
        optimizer.step(_backward(model(tokens_BT, targets_BT)), config.lr)
        with counter.phase("forward"):
            loss = model(tokens_BT, targets_BT)
        with counter.phase("backward"):
            _backward(loss)
        with counter.phase("update"):
            optimizer.step(loss, config.lr)
    return counter.counts()


def _backward(loss: torch.Tensor) -> torch.Tensor:
    loss.backward()  # type: ignore[no-untyped-call]
    return loss
