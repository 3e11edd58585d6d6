"""The kernels' functions in torch's operators; see :mod:`trainer.backends.kernels.operations`.

They compute in fp32 between their arguments and results, or in fp64 if the arguments are fp64.
"""

import torch
from torch import Tensor
from torch.nn import functional

from trainer.backends.kernels import ADAM_EPS, FLOAT8_SMALLEST, NORM_EPS
from trainer.spec import Activation


def norm(x_ND: Tensor, gain_D: Tensor, rms: bool) -> Tensor:
    unit_ND, _ = _unit(_wide(x_ND), rms)
    return (unit_ND * gain_D).to(x_ND.dtype)


def add_norm(x_ND: Tensor, delta_ND: Tensor, gain_D: Tensor, rms: bool) -> tuple[Tensor, Tensor]:
    sum_ND = (_wide(x_ND) + delta_ND).to(x_ND.dtype)
    return sum_ND, norm(sum_ND, gain_D, rms)


def norm_backward(
    gradient_ND: Tensor, x_ND: Tensor, gain_D: Tensor, residual_ND: Tensor | None, rms: bool
) -> tuple[Tensor, Tensor]:
    gradient = _wide(gradient_ND)
    unit_ND, scale_N1 = _unit(_wide(x_ND), rms)
    into_unit_ND = gradient * gain_D
    inner_ND = into_unit_ND - unit_ND * (into_unit_ND * unit_ND).mean(-1, keepdim=True)
    if not rms:
        inner_ND = inner_ND - into_unit_ND.mean(-1, keepdim=True)
    into_x_ND = inner_ND * scale_N1
    if residual_ND is not None:
        into_x_ND = into_x_ND + residual_ND
    return into_x_ND.to(x_ND.dtype), (gradient * unit_ND).sum(0)


def activate(up: Tensor, activation: Activation) -> Tensor:
    return _activated(_wide(up), activation).to(up.dtype)


def _activated(up: Tensor, activation: Activation) -> Tensor:
    if activation == "gelu":
        return functional.gelu(up)
    if activation == "relu2":
        return functional.relu(up).square()
    gate_NF, linear_NF = up.chunk(2, -1)
    return (functional.silu if activation == "swiglu" else functional.gelu)(gate_NF) * linear_NF


def activate_backward(
    gradient_NF: Tensor, up: Tensor, activation: Activation
) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        wide = _wide(up).detach().requires_grad_()
        hidden_NF = _activated(wide, activation)
        (into_up,) = torch.autograd.grad(hidden_NF, wide, _wide(gradient_NF))
    return into_up.to(up.dtype), hidden_NF.detach().to(up.dtype)


def loss_and_gradient_(
    logits_CW: Tensor, targets_C: Tensor, vocab_size: int, scale: float
) -> Tensor:
    log_p_CV = _wide(logits_CW[:, :vocab_size]).log_softmax(-1)
    targets_C1 = targets_C[:, None]
    loss_C = -log_p_CV.gather(1, targets_C1).squeeze(1)
    gradient_CV = log_p_CV.exp()
    gradient_CV.scatter_add_(1, targets_C1, torch.full_like(loss_C, -1.0)[:, None])
    logits_CW.zero_()
    logits_CW[:, :vocab_size] = gradient_CV * scale
    return loss_C


def exact_nll(logits_CW: Tensor, targets_C: Tensor, vocab_size: int) -> Tensor:
    logits_CV = logits_CW[:, :vocab_size].double()
    return functional.cross_entropy(logits_CV, targets_C, reduction="none")


def quantise(
    x: Tensor, dtype: torch.dtype, rows: bool, columns: bool
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    largest = torch.finfo(dtype).max
    scale = x.abs().amax().float().clamp(min=FLOAT8_SMALLEST) / largest
    x8 = (x.float() / scale).clamp(-largest, largest).to(dtype)
    return x8 if rows else None, x8.t().contiguous() if columns else None, scale


def adamw_(
    parameter: Tensor,
    gradient: Tensor,
    first_moment: Tensor,
    second_moment: Tensor,
    copy: Tensor | None,
    grad_scale: Tensor,
    stopped: Tensor,
    *,
    step: int,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    eps: float = ADAM_EPS,
) -> None:
    goes_on = stopped == 0
    gradient = gradient / grad_scale
    first = torch.lerp(gradient, first_moment, betas[0])
    second = torch.lerp(gradient * gradient, second_moment, betas[1])
    spread = (second / (1 - betas[1] ** step)).sqrt() + eps
    kept = parameter * (1 - lr * weight_decay)
    updated = kept - lr / (1 - betas[0] ** step) * first / spread
    for old, new in ((parameter, updated), (first_moment, first), (second_moment, second)):
        old.copy_(torch.where(goes_on, new, old))
    if copy is not None:
        copied = copy.flatten()[: parameter.numel()]  # a view: copies are contiguous
        copied.copy_(torch.where(goes_on, parameter.flatten().to(copy.dtype), copied))


def _unit(x_ND: Tensor, rms: bool) -> tuple[Tensor, Tensor]:
    """Return rows scaled to 1, and the factor of each."""
    if not rms:
        x_ND = x_ND - x_ND.mean(-1, keepdim=True)
    scale_N1 = (x_ND.square().mean(-1, keepdim=True) + NORM_EPS).rsqrt()
    return x_ND * scale_N1, scale_N1


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype is torch.float64 else x.float()
