"""The operations between the products: in torch's operators here, and on CUDA as kernels.

All take contiguous tensors and compute in fp32, or in fp64 if the arguments are fp64. Shapes: N
tokens, C of them in a chunk, D d_model, F d_ff, V vocabulary, W = V padded
(:func:`trainer.backends.kernels.padded`); for heads see :mod:`trainer.backends.torch_gpt`.
"""

import importlib
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from trainer.backends.kernels import NORM_EPS
from trainer.schema import Activation

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _kernel(
    kind: str,
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Run the function of the same name in ``triton_{kind}`` if the first argument is on CUDA.

    It imports Triton on first use, since Triton is not a dependency of the package and takes a
    third of a second to import.
    """

    def decorate(written_out: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @wraps(written_out)
        def chosen(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            first = args[0]
            if isinstance(first, Tensor) and first.is_cuda:
                module = importlib.import_module(f"trainer.backends.kernels.triton_{kind}")
                result: _Result = getattr(module, written_out.__name__)(*args, **kwargs)
                return result
            return written_out(*args, **kwargs)

        return chosen

    return decorate


# --- norms --------------------------------------------------------------------------------------


@_kernel("norm")
def norm(x_ND: Tensor, gain_D: Tensor, rms: bool) -> Tensor:
    """Return LayerNorm without bias, or RMSNorm, times the gain, which is fp32."""
    unit_ND, _ = _unit(_wide(x_ND), rms)
    return (unit_ND * gain_D).to(x_ND.dtype)


@_kernel("norm")
def add_norm(x_ND: Tensor, delta_ND: Tensor, gain_D: Tensor, rms: bool) -> tuple[Tensor, Tensor]:
    """Return ``x_ND + delta_ND`` in their dtype, and the norm of that sum."""
    sum_ND = (_wide(x_ND) + delta_ND).to(x_ND.dtype)
    return sum_ND, norm(sum_ND, gain_D, rms)


@_kernel("norm")
def norm_backward(
    gradient_ND: Tensor,
    x_ND: Tensor,
    gain_D: Tensor,
    residual_ND: Tensor | None,
    rms: bool,
    again: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of the norm's input ``x_ND`` and of its gain, and :func:`norm` again.

    :param residual_ND: the gradient that reaches the input past the norm; it is added.
    :param again: whether the norm is wanted; otherwise it is None.
    """
    gradient = _wide(gradient_ND)
    unit_ND, scale_N1 = _unit(_wide(x_ND), rms)
    into_unit_ND = gradient * gain_D
    inner_ND = into_unit_ND - unit_ND * (into_unit_ND * unit_ND).mean(-1, keepdim=True)
    if not rms:
        inner_ND = inner_ND - into_unit_ND.mean(-1, keepdim=True)
    into_x_ND = inner_ND * scale_N1
    if residual_ND is not None:
        into_x_ND = into_x_ND + residual_ND
    normed_ND = (unit_ND * gain_D).to(x_ND.dtype) if again else None
    return into_x_ND.to(x_ND.dtype), (gradient * unit_ND).sum(0), normed_ND


def _unit(x_ND: Tensor, rms: bool) -> tuple[Tensor, Tensor]:
    """Return rows scaled to 1, and the factor of each."""
    if not rms:
        x_ND = x_ND - x_ND.mean(-1, keepdim=True)
    scale_N1 = (x_ND.square().mean(-1, keepdim=True) + NORM_EPS).rsqrt()
    return x_ND * scale_N1, scale_N1


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype is torch.float64 else x.float()


# --- queries and keys ---------------------------------------------------------------------------


def rotated(x_BTHK: Tensor, turn_TK: Tensor, way: float = 1.0) -> Tensor:
    """Return heads with pairs (i, i + K/2) rotated; ``way`` is 1, or -1 for the inverse.

    Each row of the table has K/2 cosines and then as many sines. It computes in fp32. In bf16 it
    would round three times, and on a CPU take as long.
    """
    half = x_BTHK.shape[-1] // 2
    cos_T1P, sin_T1P = turn_TK[: x_BTHK.shape[1], None].chunk(2, -1)
    wide = _wide(x_BTHK)
    y_BTHK: Tensor = wide * torch.cat((cos_T1P, cos_T1P), -1)
    y_BTHK[..., :half].addcmul_(wide[..., half:], sin_T1P, value=-way)
    y_BTHK[..., half:].addcmul_(wide[..., :half], sin_T1P, value=way)
    return y_BTHK.to(x_BTHK.dtype)


@_kernel("heads")
def heads(
    qkv_NR: Tensor,
    query_gain_K: Tensor | None,
    key_gain_K: Tensor | None,
    turn_TK: Tensor | None,
    n_head: int,
    n_kv_head: int,
) -> tuple[Tensor, Tensor]:
    """Return ``q_NHK`` and ``k_NGK``: RMS norms times their gains, then rotated.

    :param qkv_NR: heads of queries, then of keys and of values.
    :param query_gain_K: None, as the other gain, if there is no norm.
    :param turn_TK: the table of :func:`rotated` for whole sequences; None if there is no rotation.
    """
    found = []
    qkv_NEK = qkv_NR.view(len(qkv_NR), n_head + 2 * n_kv_head, -1)
    parts = qkv_NEK.split_with_sizes([n_head, n_kv_head, n_kv_head], 1)
    for part_NHK, gain_K in zip(parts, (query_gain_K, key_gain_K), strict=False):
        x_NHK = _wide(part_NHK)
        if gain_K is not None:
            x_NHK = _unit(x_NHK, True)[0] * gain_K
        if turn_TK is not None:
            x_BTHK = x_NHK.reshape(-1, len(turn_TK), *x_NHK.shape[1:])
            x_NHK = rotated(x_BTHK, turn_TK).flatten(0, 1)
        found.append(x_NHK.to(qkv_NR.dtype))
    return found[0], found[1]


@_kernel("heads")
def heads_backward(
    into_q_NHK: Tensor,
    into_k_NGK: Tensor,
    into_v_NGK: Tensor,
    qkv_NR: Tensor,
    query_gain_K: Tensor | None,
    key_gain_K: Tensor | None,
    turn_TK: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of ``qkv_NR`` and, if there is a norm, of both gains."""
    n_head, n_kv_head = into_q_NHK.shape[1], into_k_NGK.shape[1]
    given = [one for one in (qkv_NR, query_gain_K, key_gain_K) if one is not None]
    with torch.enable_grad():
        leaves = [_wide(one).detach().requires_grad_() for one in given]
        wide_NR, *gains = leaves
        query, key = gains or (None, None)
        both = heads(wide_NR, query, key, turn_TK, n_head, n_kv_head)
        v_NGK = wide_NR[:, -into_v_NGK[0].numel() :].view(into_v_NGK.shape)
        into = [_wide(one) for one in (into_q_NHK, into_k_NGK, into_v_NGK)]
        into_qkv_NR, *into_gains = torch.autograd.grad((*both, v_NGK), leaves, into)
    query, key = into_gains or (None, None)
    return into_qkv_NR.to(qkv_NR.dtype), query, key


# --- activations --------------------------------------------------------------------------------


def activated(up: Tensor, activation: Activation) -> Tensor:
    """Return ``hidden_NF`` from ``up_NF``; if gated from ``[N, 2 F]``, the gate's half first.

    It computes in the dtype of ``up`` and is differentiable, unlike the others.
    """
    if activation == "gelu":
        return functional.gelu(up)
    if activation == "relu2":
        return functional.relu(up).square()
    gate_NF, linear_NF = up.chunk(2, dim=-1)
    gate = functional.silu if activation == "swiglu" else functional.gelu
    return gate(gate_NF) * linear_NF


@_kernel("activation")
def activate(up: Tensor, activation: Activation) -> Tensor:
    """Return :func:`activated`, computed in fp32."""
    return activated(_wide(up), activation).to(up.dtype)


@_kernel("activation")
def activate_backward(
    gradient_NF: Tensor, up: Tensor, activation: Activation
) -> tuple[Tensor, Tensor]:
    """Return the gradient of ``up``, and ``hidden_NF`` again."""
    with torch.enable_grad():
        wide = _wide(up).detach().requires_grad_()
        hidden_NF = activated(wide, activation)
        (into_up,) = torch.autograd.grad(hidden_NF, wide, _wide(gradient_NF))
    return into_up.to(up.dtype), hidden_NF.detach().to(up.dtype)


# --- the loss -----------------------------------------------------------------------------------


@_kernel("cross_entropy")
def loss_and_gradient_(
    logits_CW: Tensor, targets_C: Tensor, vocab_size: int, scale: float
) -> Tensor:
    """Return ``loss_C``, fp32 nats, and overwrite the logits with ``scale`` times their gradient.

    The columns after the vocabulary become 0.
    """
    log_p_CV = _wide(logits_CW[:, :vocab_size]).log_softmax(-1)
    targets_C1 = targets_C[:, None]
    loss_C = -log_p_CV.gather(1, targets_C1).squeeze(1)
    gradient_CV = log_p_CV.exp()
    gradient_CV.scatter_add_(1, targets_C1, torch.full_like(loss_C, -1.0)[:, None])
    logits_CW.zero_()
    logits_CW[:, :vocab_size] = gradient_CV * scale
    return loss_C


@_kernel("cross_entropy")
def exact_nll(logits_CW: Tensor, targets_C: Tensor, vocab_size: int) -> Tensor:
    """Return ``nll_C`` in nats, fp64.

    On CUDA the exponentials are fp32, and their sum and its logarithm fp64: an unbiased error of
    about 1e-7 per token. In torch's operators everything is fp64.
    """
    logits_CV = logits_CW[:, :vocab_size].double()
    return functional.cross_entropy(logits_CV, targets_C, reduction="none")
