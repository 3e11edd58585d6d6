"""Find kernels that compute something else than torch's own operators.

Before a campaign, its warm-up trials compare the gradients of a step on both
(:func:`compare_gradients`), since a wrong kernel may well give finite numbers: NVIDIA's assembler
has got one wrong on Hopper (Triton issue 11111).

In a trial, the check finds out whether the config or a kernel caused a non-finite step.
From the first bad step on, nothing is updated (:mod:`trainer.backends.optimizer`). So a trial ends
with the weights that made the step, and its batch can be drawn again. The check repeats the step on
torch's own operators. If it is finite there, the check replaces each kind of kernel in turn and
names those without which the step is finite. Megatron-Core's operators cannot be replaced one by
one: its weights are copied to a model on torch's own operators.
"""

import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from autoresearch.errors import MachineryError
from trainer.backends.blocks import attending_by_formula
from trainer.backends.kernels import operations
from trainer.backends.torch_gpt import TorchGPT
from trainer.training.train import TrialStopped

DIVERGED = 10.0
"""A loss above this multiple of a uniform guess's loss is not blamed on a kernel. Near infinity two
ways of computing the same step overflow at different moments."""
TOLERANCE = {"fp32": 0.02, "bf16": 0.2, "fp8": 0.5}
"""Largest distance of two gradients of one step, relative to their norm. On an H100 those of the
354 M shape were 0.03 apart in bf16 and 0.12 in fp8, by roundings alone."""
BOUNDED_LR = 1.0
"""Finite gradients leave finite weights up to this learning rate, since an AdamW update moves a
weight by at most some tens of learning rates."""


@contextmanager
def checking_kernels(
    model: nn.Module, batches: Callable[[int], tuple[Tensor, Tensor]]
) -> Iterator[None]:
    """Check the kernels if a trial ends as ``nonfinite`` while the block runs.

    ``batches`` returns the inputs and targets of a step by its number, from 1.

    :raises MachineryError: if kernels are at fault and not the config; it names them.
    """
    try:
        yield
    except TrialStopped as stop:
        if stop.status == "nonfinite":
            traceback.clear_frames(stop.__traceback__)  # frees the optimizer's state
            _check(model, batches(stop.steps + 1), stop)
        raise


def compare_gradients(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Compare a step's gradients on the kernels of the torch backend with those on torch's own
    operators.

    Two sequences take little memory. Compiled blocks would be compiled again for them.

    :raises MachineryError: if they are further apart than roundings explain; it names the kernels.
    """
    reference = _reference(model)
    if reference is None or reference is not model:
        return
    rows = len(batch[0]) if "compiled blocks" in reference.kernels else 2
    tokens_BT, targets_BT = (part[:rows] for part in batch)
    with reference.on_torch_operators(), attending_by_formula():
        _, wanted = _gradients(reference, (tokens_BT, targets_BT), rows=1)

    def distance() -> float:
        _, found = _gradients(reference, (tokens_BT, targets_BT), rows=rows)
        torch._foreach_sub_(found, wanted)
        return (_norm(found) / _norm(wanted)).item()

    apart, most = distance(), TOLERANCE[reference.config.precision]
    if not apart <= most:  # nor is NaN
        names = _at_fault(reference, lambda: distance() <= most)
        raise MachineryError(
            f"kernels are wrong on this GPU: a step's gradients are {apart:.2g} of their norm away"
            f" from those of torch's own operators, and roundings explain {most:g}; at fault:"
            f" {names}; report this with the GPU's name, and use another torch or --compile"
        )


def _check(model: nn.Module, batch: tuple[Tensor, Tensor], stop: TrialStopped) -> None:
    try:
        found = _found(model, batch)
    except Exception:  # noqa: BLE001 (mostly memory; without a check the config stays at fault)
        traceback.print_exc()
        return
    if found:
        raise MachineryError(
            f"kernels failed and not the config: {str(stop).partition(';')[0]}, but {found}; report"
            " this with trainer.log and the GPU's name, and train another campaign with --compile,"
            " another torch or backend torch"
        )


def _found(model: nn.Module, batch: tuple[Tensor, Tensor]) -> str:
    """Return what is wrong with which kernels, as a clause; empty if nothing is."""
    reference = _reference(model)
    if reference is None:
        return ""
    weights = torch.stack([p.detach().isfinite().all() for p in reference.parameters()])
    if not weights.all():
        wrong = "its weights are not finite after a finite step: the update (adamw) is wrong"
        return wrong if reference.config.lr <= BOUNDED_LR else ""
    with reference.on_torch_operators(), attending_by_formula():
        loss, grad_norm = _step(reference, batch, rows=1)
    uniform = math.log(reference.embedding_VD.shape[0])
    if not (math.isfinite(grad_norm) and loss < DIVERGED * uniform):
        return ""
    found = f"torch's own operators give a loss of {loss:.4g} from the same weights and batch"
    if reference is not model:
        return f"{found}; at fault: Megatron-Core's or TransformerEngine's operators"

    def is_finite() -> bool:
        return all(map(math.isfinite, _step(reference, batch, rows=len(batch[0]))))

    if is_finite():
        return f"{found}, and so do the kernels in training: scoring, or the GPU, is unreliable"
    return f"{found}; at fault: {_at_fault(reference, is_finite)}"


def _at_fault(model: TorchGPT, is_right: Callable[[], bool]) -> str:
    """Return the names of the kernels without which a step is right; of all, if that is none."""
    suspects: dict[str, AbstractContextManager[None]] = {
        **{name: _without(name, model) for name in model.kernels},
        "attention": attending_by_formula(),
        "adamw": model.on_new_copies(float8=False),
    }
    at_fault = []
    for name, without in suspects.items():
        with without:
            if is_right():
                at_fault.append(name)
    return ", ".join(at_fault or model.kernels)


@contextmanager
def _without(kernels: str, model: TorchGPT) -> Iterator[None]:
    """Replace one kind of kernel, and the copies of weights that it made."""
    with operations.written_out_instead(kernels):
        if kernels == "float8":
            with model.on_new_copies(float8=True):
                yield
        else:
            yield


def _reference(model: nn.Module) -> TorchGPT | None:
    """Return a model of the same weights that can run on torch's own operators, if ``model``
    does not do so already."""
    # Megatron-Core's model has it, and naming its class here would import Megatron-Core.
    as_torch: Callable[[], TorchGPT] | None = getattr(model, "as_torch", None)
    if as_torch is not None:
        return as_torch()
    return model if isinstance(model, TorchGPT) and model.kernels else None


def _step(model: TorchGPT, batch: tuple[Tensor, Tensor], *, rows: int) -> tuple[float, float]:
    """Return loss and gradient norm of a step, ``rows`` sequences at once; no weight changes."""
    loss, gradients = _gradients(model, batch, rows=rows)
    return loss.item(), _norm(gradients).item()


def _gradients(
    model: TorchGPT, batch: tuple[Tensor, Tensor], *, rows: int
) -> tuple[Tensor, list[Tensor]]:
    """Return loss and gradients of a step, ``rows`` sequences at once; no weight changes."""
    model.train()
    model.zero_grad()
    losses = []
    tokens_BT, targets_BT = batch
    for some in zip(torch.split(tokens_BT, rows), torch.split(targets_BT, rows), strict=True):
        loss = model(*some)
        loss.backward()
        losses.append(loss.detach())
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    model.zero_grad()  # drops them; it does not fill them with zeros
    torch._foreach_div_(gradients, len(losses))
    return torch.stack(losses).mean(), gradients


def _norm(tensors: list[Tensor]) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
    return norm
