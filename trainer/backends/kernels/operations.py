"""The operations between the products, each in the implementation for its tensors' device.

All take contiguous tensors and compute in fp32. Shapes: N tokens, C of them in a chunk, D d_model,
F d_ff, V vocabulary, W = V padded (:func:`trainer.backends.kernels.padded`).
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from trainer.backends.kernels import ADAM_EPS, written_out
from trainer.spec import Activation

_replaced: set[str] = set()
"""Kinds of kernel that torch's operators replace."""


@contextmanager
def written_out_instead(kernels: str) -> Iterator[None]:
    """Replace the kernels of ``triton_{kernels}`` by torch's operators while the block runs."""
    _replaced.add(kernels)
    try:
        yield
    finally:
        _replaced.remove(kernels)


def _has_kernels(tensor: Tensor) -> bool:
    return tensor.is_cuda


def _form(kernels: str, tensor: Tensor) -> Any:
    """Return the module that implements these kernels for the tensor's device.

    It imports Triton on first use, since Triton is not a dependency of the package and takes a
    third of a second to import.
    """
    if _has_kernels(tensor) and kernels not in _replaced:
        return importlib.import_module(f"trainer.backends.kernels.triton_{kernels}")
    return written_out


# --- norms --------------------------------------------------------------------------------------


def norm(x_ND: Tensor, gain_D: Tensor, rms: bool) -> Tensor:
    """Return LayerNorm without bias, or RMSNorm, times the gain, which is fp32."""
    y_ND: Tensor = _form("norm", x_ND).norm(x_ND, gain_D, rms)
    return y_ND


def add_norm(x_ND: Tensor, delta_ND: Tensor, gain_D: Tensor, rms: bool) -> tuple[Tensor, Tensor]:
    """Return ``x_ND + delta_ND`` in their dtype, and the norm of that sum."""
    both: tuple[Tensor, Tensor] = _form("norm", x_ND).add_norm(x_ND, delta_ND, gain_D, rms)
    return both


def norm_backward(
    gradient_ND: Tensor, x_ND: Tensor, gain_D: Tensor, residual_ND: Tensor | None, rms: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the norm's input ``x_ND`` and of its gain.

    :param residual_ND: the gradient that reaches the input past the norm; it is added.
    """
    both: tuple[Tensor, Tensor] = _form("norm", x_ND).norm_backward(
        gradient_ND, x_ND, gain_D, residual_ND, rms
    )
    return both


# --- activations --------------------------------------------------------------------------------


def activate(up: Tensor, activation: Activation) -> Tensor:
    """Return ``hidden_NF`` from ``up_NF``; if gated from ``[N, 2 F]``, the gate's half first."""
    hidden_NF: Tensor = _form("activation", up).activate(up, activation)
    return hidden_NF


def activate_backward(
    gradient_NF: Tensor, up: Tensor, activation: Activation
) -> tuple[Tensor, Tensor]:
    """Return the gradient of ``up``, and ``hidden_NF`` again."""
    both: tuple[Tensor, Tensor] = _form("activation", up).activate_backward(
        gradient_NF, up, activation
    )
    return both


# --- the loss -----------------------------------------------------------------------------------


def loss_and_gradient_(
    logits_CW: Tensor, targets_C: Tensor, vocab_size: int, scale: float
) -> Tensor:
    """Return ``loss_C``, fp32 nats, and overwrite the logits with ``scale`` times their gradient.

    The columns after the vocabulary become 0.
    """
    loss_C: Tensor = _form("cross_entropy", logits_CW).loss_and_gradient_(
        logits_CW, targets_C, vocab_size, scale
    )
    return loss_C


def exact_nll(logits_CW: Tensor, targets_C: Tensor, vocab_size: int) -> Tensor:
    """Return ``nll_C`` in nats, fp64.

    On CUDA the exponentials are fp32, and their sum and its logarithm fp64: an unbiased error of
    about 1e-7 per token. In torch's operators everything is fp64.
    """
    nll_C: Tensor = _form("cross_entropy", logits_CW).exact_nll(logits_CW, targets_C, vocab_size)
    return nll_C


# --- fp8 ----------------------------------------------------------------------------------------


def quantise(
    x: Tensor, dtype: torch.dtype, rows: bool, columns: bool
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Return a matrix in fp8, its transpose in fp8, each if requested, and the fp32 scale of both.

    The scale, by which both must be multiplied, is the largest magnitude over the dtype's largest.
    """
    found: tuple[Tensor | None, Tensor | None, Tensor] = _form("float8", x).quantise(
        x, dtype, rows, columns
    )
    return found


# --- the update ---------------------------------------------------------------------------------


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
    """Do the update of :class:`trainer.backends.optimizer.AdamW`, in fp32, and write a copy too.

    :param copy: a tensor in another dtype, of at least as many elements as the parameter, whose
        first elements receive the parameter's.
    :param grad_scale: a scalar on the device, by which gradients are divided.
    :param stopped: a scalar on the device; if it is not 0, nothing is written.
    :param step: the number of the step, from 1.
    """
    _form("adamw", parameter).adamw_(
        parameter, gradient, first_moment, second_moment, copy, grad_scale, stopped,
        step=step, lr=lr, betas=betas, weight_decay=weight_decay, eps=eps,
    )  # fmt: skip
