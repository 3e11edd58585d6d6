"""Find kernels that compute something else than torch's own operators.

Before a campaign, its warm-up trials compare the gradients of a step on both
(:func:`compare_gradients`), since a wrong kernel may well give finite numbers: NVIDIA's assembler
has got one wrong on Hopper (Triton issue 11111).

In a trial, the check finds out whether the config or a kernel caused a non-finite step.
From the first bad step on, nothing is updated (:mod:`trainer.backends.optimizer`). So a trial ends
with the weights that made the step, and its batch can be drawn again. If the step is finite on
torch's own operators, the kernels are at fault.
"""

import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from autoresearch.errors import MachineryError
from trainer.backends.torch_gpt import TorchGPT
from trainer.training.train import TrialStopped

DIVERGED = 10.0
"""A loss above this multiple of a uniform guess's loss is not blamed on a kernel. Near infinity two
ways of computing the same step overflow at different moments."""
TOLERANCE = {"fp32": 0.02, "bf16": 0.2}
"""Largest distance of two gradients of one step, relative to their norm. On an H100 those of the
354 M shape were 0.03 apart in bf16, by roundings alone."""
BOUNDED_LR = 1.0
"""Finite gradients leave finite weights up to this learning rate, since an AdamW update moves a
weight by at most some tens of learning rates."""


@contextmanager
def checking_kernels(
    model: nn.Module, batches: Callable[[int], tuple[Tensor, Tensor]]
) -> Iterator[None]:
    """Check the kernels if a trial ends as ``nonfinite`` while the block runs.

    ``batches`` returns the inputs and targets of a step by its number, from 1.

    :raises MachineryError: if kernels are at fault and not the config.
    """
    try:
        yield
    except TrialStopped as stop:
        if stop.status == "nonfinite" and isinstance(model, TorchGPT) and model.has_kernels:
            traceback.clear_frames(stop.__traceback__)  # frees the optimizer's state
            if _kernels_failed(model, batches(stop.steps + 1)):
                raise MachineryError(
                    f"kernels failed and not the config: {str(stop).partition(';')[0]}, but torch's"
                    " own operators give finite numbers from the same weights and batch; report"
                    " this with trainer.log and the GPU's name, and train another campaign with"
                    " another torch"
                ) from stop
        raise


def _kernels_failed(model: TorchGPT, batch: tuple[Tensor, Tensor]) -> bool:
    """Return whether the step is finite on torch's own operators, or its update was not."""
    try:
        if not all(p.detach().isfinite().all() for p in model.parameters()):
            return model.config.lr <= BOUNDED_LR
        with model.on_torch_operators(), sdpa_kernel(SDPBackend.MATH):
            loss, gradients = _gradients(model, batch, rows=1)
        uniform = math.log(model.embedding_VD.shape[0])
        return math.isfinite(_norm(gradients)) and loss < DIVERGED * uniform
    except Exception:  # noqa: BLE001 (mostly memory; without a check the config stays at fault)
        traceback.print_exc()
        return False


def compare_gradients(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Compare a step's gradients on the kernels of the torch backend with those on torch's own
    operators.

    Two sequences take little memory.

    :raises MachineryError: if they are further apart than roundings explain.
    """
    if not isinstance(model, TorchGPT) or not model.has_kernels:
        return
    some = batch[0][:2], batch[1][:2]
    with model.on_torch_operators(), sdpa_kernel(SDPBackend.MATH):
        _, wanted = _gradients(model, some, rows=1)
    _, found = _gradients(model, some, rows=2)
    torch._foreach_sub_(found, wanted)
    apart, most = _norm(found) / _norm(wanted), TOLERANCE[model.config.precision]
    if not apart <= most:  # nor is NaN
        raise MachineryError(
            f"kernels are wrong on this GPU: a step's gradients are {apart:.2g} of their norm away"
            f" from those of torch's own operators, and roundings explain {most:g}; report this"
            " with the GPU's name, and use another torch"
        )


def _gradients(
    model: TorchGPT, batch: tuple[Tensor, Tensor], *, rows: int
) -> tuple[float, list[Tensor]]:
    """Return loss and gradients of a step, ``rows`` sequences at once; no weight changes."""
    model.train()
    model.zero_grad()
    losses = []
    for some in zip(*(torch.split(part, rows) for part in batch), strict=True):
        loss = model(*some)
        loss.backward()
        losses.append(loss.detach())
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    model.zero_grad()  # drops them; it does not fill them with zeros
    torch._foreach_div_(gradients, len(losses))
    return torch.stack(losses).mean().item(), gradients


def _norm(tensors: list[Tensor]) -> float:
    return float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors))).item())
