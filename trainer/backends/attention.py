"""Causal attention, by the fastest method for the device and the dtype.

Shapes: B sequences, T tokens, H heads, G heads of keys and values, K head_dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional

from trainer.backends.products import cpu_multiplies_bf16

SHORT_SEQUENCE = 512
"""Up to this many tokens :func:`_attend_short_bf16` beats the fused kernel on CPU."""


def attend(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor) -> Tensor:
    """Return causal softmax attention, ``y_BHTK`` in the inputs' dtype; H is a multiple of G.

    On CUDA scaled_dot_product_attention chooses the kernel. In bf16 that is FlashAttention, since
    trials turn cuDNN's kernel off by default (:attr:`trainer.spec.TrialSpec.cudnn_attention`).
    FlashAttention takes grouped keys and values directly. The fp32 kernels, and all kernels on a
    CPU, do not, so there each key and value is repeated for its queries.

    On CPU the fused kernel's bf16 backward pass takes three to four times as long as its fp32 one
    (6.3 against 1.4 ms for 8 × 4 heads of 128 × 32). So bf16 avoids it there: short sequences run
    as two products if the CPU has bf16 products, all others through the fp32 kernel.
    """
    on_cpu, in_bf16 = q_BHTK.device.type == "cpu", q_BHTK.dtype is torch.bfloat16
    queries_each = q_BHTK.shape[1] // k_BGTK.shape[1]
    grouped = queries_each > 1
    if grouped and (on_cpu or not in_bf16):
        k_BGTK = k_BGTK.repeat_interleave(queries_each, dim=1)
        v_BGTK = v_BGTK.repeat_interleave(queries_each, dim=1)
        grouped = False
    if on_cpu and in_bf16:
        if q_BHTK.shape[2] <= SHORT_SEQUENCE and cpu_multiplies_bf16():
            return _attend_short_bf16(q_BHTK, k_BGTK, v_BGTK)
        y_BHTK = functional.scaled_dot_product_attention(
            q_BHTK.float(), k_BGTK.float(), v_BGTK.float(), is_causal=True
        )
        return y_BHTK.to(torch.bfloat16)
    return functional.scaled_dot_product_attention(
        q_BHTK, k_BGTK, v_BGTK, is_causal=True, enable_gqa=grouped
    )


def attend_by_scores(
    q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, change: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return what :func:`attend` does, with every score changed before the mask, in fp32."""
    queries_each = q_BHTK.shape[1] // k_BGTK.shape[1]
    k_BHTK, v_BHTK = (x.repeat_interleave(queries_each, dim=1) for x in (k_BGTK, v_BGTK))
    length, head_dim = q_BHTK.shape[2:]
    scores_BHTT = q_BHTK.float() @ k_BHTK.float().transpose(2, 3) / math.sqrt(head_dim)
    later_TT = torch.ones(length, length, dtype=torch.bool, device=q_BHTK.device).triu(1)
    # Not an addition: a score that is not finite must not show through the mask.
    masked_BHTT = change(scores_BHTT).masked_fill(later_TT, -math.inf)
    return masked_BHTT.softmax(-1).to(v_BHTK.dtype) @ v_BHTK


@contextmanager
def attending_by_formula() -> Iterator[None]:
    """Make :func:`attend` use products and a softmax, no fused kernel, while the block runs."""
    kernels = ("flash", "mem_efficient", "cudnn")
    of = torch.backends.cuda
    before = {name: getattr(of, f"{name}_sdp_enabled")() for name in kernels}
    try:
        for name in kernels:
            getattr(of, f"enable_{name}_sdp")(False)
        yield
    finally:
        for name, was_on in before.items():
            getattr(of, f"enable_{name}_sdp")(was_on)


def _attend_short_bf16(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
    """Compute attention as its two matrix products, which on CPU run on bf16 tiles (AMX)."""
    length, head_dim = q_BHTK.shape[2:]
    mask_TT = q_BHTK.new_full((length, length), -math.inf).triu_(1)
    scores = torch.baddbmm(
        mask_TT,
        q_BHTK.reshape(-1, length, head_dim),
        k_BHTK.reshape(-1, length, head_dim).transpose(1, 2),
        alpha=1.0 / math.sqrt(head_dim),
    )
    weights = scores.softmax(-1)
    return torch.bmm(weights, v_BHTK.reshape(-1, length, head_dim)).view(q_BHTK.shape)
