"""Whether a step that came out non-finite is the config's doing or a kernel's.

From the first bad step on nothing is updated (:mod:`trainer.backends.optimizer`), so the weights
that made it are there when a trial ends, and its batch can be drawn again. The step is repeated on
torch's own operators; if it is finite there, each kind of kernel is replaced in turn, and those
without which the step is finite are named.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from autoresearch.errors import MachineryError
from trainer.backends.attention import attending_by_formula
from trainer.backends.kernels import operations
from trainer.backends.torch_gpt import TorchGPT
from trainer.training.data import Batches
from trainer.training.train import TrialStopped

DIVERGED = 10.0
"""A loss of more than so many times that of guessing is no kernel's work: on the way to infinity
two ways of computing the same step overflow at different moments."""
BOUNDED_LR = 1.0
"""An update of AdamW moves a weight by some tens of learning rates at most, so up to this rate
finite gradients leave finite weights."""


@contextmanager
def checking_kernels(model: nn.Module, batches: Batches) -> Iterator[None]:
    """Look into what ends a trial as ``nonfinite`` while the block runs.

    :raises MachineryError: if kernels are at fault, naming them; the config is not blamed then.
    """
    try:
        yield
    except TrialStopped as stop:
        if stop.status == "nonfinite" and isinstance(model, TorchGPT) and model.kernels:
            traceback.clear_frames(stop.__traceback__)  # the optimizer's state makes room
            _check(model, batches(stop.steps + 1), stop)
        raise


def _check(model: TorchGPT, batch: tuple[Tensor, Tensor], stop: TrialStopped) -> None:
    try:
        found = _found(model, batch)
    except Exception:  # noqa: BLE001 (memory above all; what cannot be checked stays the config's)
        traceback.print_exc()
        return
    if found:
        raise MachineryError(
            f"kernels failed and not the config: {stop}, but {found}; report this with trainer.log"
            " and the GPU's name, and train another campaign with --compile or another torch"
        )


def _found(model: TorchGPT, batch: tuple[Tensor, Tensor]) -> str:
    """Return what is wrong with which kernels, as a clause; empty where nothing is."""
    weights = torch.stack([p.detach().isfinite().all() for p in model.parameters()])
    if not weights.all():
        if model.config.lr > BOUNDED_LR:
            return ""
        return "its weights are not finite after a finite step: the update (adamw) is wrong"
    with model.on_torch_operators(), attending_by_formula():
        loss, grad_norm = _step(model, batch, rows=1)
    if not (math.isfinite(grad_norm) and loss < DIVERGED * math.log(model.embedding_VD.shape[0])):
        return ""
    whole = partial(_step, model, batch, rows=len(batch[0]))
    found = f"torch's own operators give a loss of {loss:.4g} from the same weights and batch"
    if _is_finite(whole):
        return f"{found}, and so do the kernels in training: scoring, or the GPU, is unreliable"
    at_fault = [name for name, without in _suspects(model).items() if _is_finite(whole, without)]
    return f"{found}; at fault: {', '.join(at_fault or model.kernels)}"


def _suspects(model: TorchGPT) -> dict[str, AbstractContextManager[None]]:
    """Return what can be replaced, by name."""
    return {
        **{name: operations.written_out_instead(name) for name in model.kernels},
        "attention": attending_by_formula(),
        "adamw": model.on_new_copies(),
    }


def _is_finite(
    step: Callable[[], tuple[float, float]], without: AbstractContextManager[None] | None = None
) -> bool:
    with without or nullcontext():
        return all(map(math.isfinite, step()))


def _step(model: TorchGPT, batch: tuple[Tensor, Tensor], *, rows: int) -> tuple[float, float]:
    """Loss and gradient norm of a step, ``rows`` sequences at once; no weight changes."""
    model.train()
    model.zero_grad()
    losses = []
    tokens_BT, targets_BT = batch
    for some in zip(torch.split(tokens_BT, rows), torch.split(targets_BT, rows), strict=True):
        loss = model(*some)
        loss.backward()
        losses.append(loss.detach())
    norms = torch._foreach_norm([p.grad for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return torch.stack(losses).mean().item(), torch.linalg.vector_norm(torch.stack(norms)).item()
