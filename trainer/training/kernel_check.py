"""Find out whether the config or a kernel caused a non-finite step.

From the first bad step on, nothing is updated (:mod:`trainer.backends.optimizer`). So a trial ends
with the weights that made the step, and its batch can be drawn again. The check repeats the step on
torch's own operators. If it is finite there, the check replaces each kind of kernel in turn and
names those without which the step is finite.
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
"""A loss above this multiple of a uniform guess's loss is not blamed on a kernel. Near infinity two
ways of computing the same step overflow at different moments."""
BOUNDED_LR = 1.0
"""Finite gradients leave finite weights up to this learning rate, since an AdamW update moves a
weight by at most some tens of learning rates."""


@contextmanager
def checking_kernels(model: nn.Module, batches: Batches) -> Iterator[None]:
    """Check the kernels if a trial ends as ``nonfinite`` while the block runs.

    :raises MachineryError: if kernels are at fault and not the config; it names them.
    """
    try:
        yield
    except TrialStopped as stop:
        if stop.status == "nonfinite" and isinstance(model, TorchGPT) and model.kernels:
            traceback.clear_frames(stop.__traceback__)  # frees the optimizer's state
            _check(model, batches(stop.steps + 1), stop)
        raise


def _check(model: TorchGPT, batch: tuple[Tensor, Tensor], stop: TrialStopped) -> None:
    try:
        found = _found(model, batch)
    except Exception:  # noqa: BLE001 (mostly memory; without a check the config stays at fault)
        traceback.print_exc()
        return
    if found:
        raise MachineryError(
            f"kernels failed and not the config: {stop}, but {found}; report this with trainer.log"
            " and the GPU's name, and train another campaign with --compile or another torch"
        )


def _found(model: TorchGPT, batch: tuple[Tensor, Tensor]) -> str:
    """Return what is wrong with which kernels, as a clause; empty if nothing is."""
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
    """Return context managers that replace one kind of kernel each, by its name."""
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
    """Return loss and gradient norm of a step, ``rows`` sequences at once; no weight changes."""
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
