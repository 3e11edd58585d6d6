"""The norm and rotation of queries and keys, from the packed product to what attention takes.

A row of a block is one head of one token. The backward pass recomputes the norm, and writes the
packed gradient, with that of the values, in the same pass.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from trainer.backends.kernels import NORM_EPS

_PROGRAMS = 1024
"""Programs of the backward pass, at most; each adds up the gains' gradients over its rows."""
_BLOCK = 1024


@triton.jit
def _places(token, head, tokens, heads, head_dim, HALF: tl.constexpr):
    """Return the offsets of each row's lower half, and which parts of both halves exist."""
    columns, half = tl.arange(0, HALF)[None, :], (head_dim + 1) // 2
    exists = (token < tokens)[:, None]
    place = ((token * heads + head) * head_dim)[:, None] + columns
    return place, exists & (columns < half), exists & (columns + half < head_dim)


@triton.jit
def _load(pointer, place, low, high, half):
    a = tl.load(pointer + place, mask=low, other=0.0).to(tl.float32)
    return a, tl.load(pointer + place + half, mask=high, other=0.0).to(tl.float32)


@triton.jit
def _store(pointer, place, low, high, half, a, b):
    tl.store(pointer + place, a.to(pointer.dtype.element_ty), mask=low)
    tl.store(pointer + place + half, b.to(pointer.dtype.element_ty), mask=high)


@triton.jit
def _gain(query_ptr, key_ptr, is_query, low, high, half, HALF: tl.constexpr):
    columns = tl.arange(0, HALF)[None, :]
    query_a, query_b = _load(query_ptr, columns, low & is_query, high & is_query, half)
    key_a, key_b = _load(key_ptr, columns, low & (is_query == 0), high & (is_query == 0), half)
    return query_a + key_a, query_b + key_b


@triton.jit
def _scale(a, b, head_dim, eps):
    """Return one over each row's root mean square."""
    return 1.0 / tl.sqrt((tl.sum(a * a, 1) + tl.sum(b * b, 1)) / head_dim + eps)[:, None]


@triton.jit
def _heads(
    qkv_ptr, query_gain_ptr, key_gain_ptr, turn_ptr, q_ptr, k_ptr,
    tokens, length, n_head, n_kv_head, head_dim, eps,
    NORM: tl.constexpr, TURN: tl.constexpr, ROWS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    token, head = row // (n_head + n_kv_head), row % (n_head + n_kv_head)
    is_query, half = (head < n_head)[:, None], (head_dim + 1) // 2
    place, low, high = _places(token, head, tokens, n_head + 2 * n_kv_head, head_dim, HALF)
    a, b = _load(qkv_ptr, place, low, high, half)
    if NORM:
        scale = _scale(a, b, head_dim, eps)
        gain_a, gain_b = _gain(query_gain_ptr, key_gain_ptr, is_query, low, high, half, HALF)
        a, b = a * scale * gain_a, b * scale * gain_b
    if TURN:
        angle, _, _ = _places(token % length, 0, tokens, 1, head_dim, HALF)
        cos, sin = _load(turn_ptr, angle, low, high, half)
        a, b = a * cos - b * sin, b * cos + a * sin
    place, _, _ = _places(token, head, tokens, n_head, head_dim, HALF)
    _store(q_ptr, place, low & is_query, high & is_query, half, a, b)
    place, _, _ = _places(token, head - n_head, tokens, n_kv_head, head_dim, HALF)
    _store(k_ptr, place, low & (is_query == 0), high & (is_query == 0), half, a, b)


@triton.jit
def _heads_backward(
    into_q_ptr, into_k_ptr, into_v_ptr, qkv_ptr, query_gain_ptr, key_gain_ptr, turn_ptr,
    into_qkv_ptr, into_gains_ptr, tokens, length, n_head, n_kv_head, head_dim, eps,
    NORM: tl.constexpr, TURN: tl.constexpr, ROWS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    heads, half = n_head + 2 * n_kv_head, (head_dim + 1) // 2
    query_a, query_b = tl.zeros([HALF], tl.float32), tl.zeros([HALF], tl.float32)
    key_a, key_b = tl.zeros([HALF], tl.float32), tl.zeros([HALF], tl.float32)
    for chunk in range(tl.cdiv(tl.cdiv(tokens * heads, ROWS) - program, programs)):
        row = (program + chunk * programs) * ROWS + tl.arange(0, ROWS)
        token, head = row // heads, row % heads
        is_query = (head < n_head)[:, None]
        is_value = (head >= n_head + n_kv_head)[:, None]
        is_key = (is_query | is_value) == 0
        place, low, high = _places(token, head, tokens, n_head, head_dim, HALF)
        a, b = _load(into_q_ptr, place, low & is_query, high & is_query, half)
        place, _, _ = _places(token, head - n_head, tokens, n_kv_head, head_dim, HALF)
        more_a, more_b = _load(into_k_ptr, place, low & is_key, high & is_key, half)
        a, b = a + more_a, b + more_b
        place -= n_kv_head * head_dim
        value_a, value_b = _load(into_v_ptr, place, low & is_value, high & is_value, half)
        if TURN:
            angle, _, _ = _places(token % length, 0, tokens, 1, head_dim, HALF)
            cos, sin = _load(turn_ptr, angle, low, high, half)
            a, b = a * cos + b * sin, b * cos - a * sin
        place, low, high = _places(token, head, tokens, heads, head_dim, HALF)
        if NORM:
            x_a, x_b = _load(qkv_ptr, place, low, high, half)
            scale = _scale(x_a, x_b, head_dim, eps)
            x_a, x_b = x_a * scale, x_b * scale
            query_a += tl.sum(tl.where(is_query, a * x_a, 0.0), 0)
            query_b += tl.sum(tl.where(is_query, b * x_b, 0.0), 0)
            key_a += tl.sum(tl.where(is_key, a * x_a, 0.0), 0)
            key_b += tl.sum(tl.where(is_key, b * x_b, 0.0), 0)
            gain_a, gain_b = _gain(query_gain_ptr, key_gain_ptr, is_query, low, high, half, HALF)
            a, b = a * gain_a, b * gain_b
            along = ((tl.sum(a * x_a, 1) + tl.sum(b * x_b, 1)) / head_dim)[:, None]
            a, b = (a - x_a * along) * scale, (b - x_b * along) * scale
        _store(into_qkv_ptr, place, low, high, half, a + value_a, b + value_b)
    if NORM:
        columns = tl.arange(0, HALF)
        low, high = columns < half, columns + half < head_dim
        place = 2 * program * head_dim + columns
        _store(into_gains_ptr, place, low, high, half, query_a, query_b)
        _store(into_gains_ptr, place + head_dim, low, high, half, key_a, key_b)


def heads(
    qkv_NR: Tensor, query_gain_K: Tensor | None, key_gain_K: Tensor | None,
    turn_TK: Tensor | None, n_head: int, n_kv_head: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    tokens, head_dim = len(qkv_NR), qkv_NR.shape[1] // (n_head + 2 * n_kv_head)
    q_NHK = qkv_NR.new_empty(tokens, n_head, head_dim)
    k_NGK = qkv_NR.new_empty(tokens, n_kv_head, head_dim)
    block = _blocks(head_dim)
    _heads[(triton.cdiv(tokens * (n_head + n_kv_head), block["ROWS"]),)](
        qkv_NR, _or(query_gain_K, qkv_NR), _or(key_gain_K, qkv_NR), _or(turn_TK, qkv_NR),
        q_NHK, k_NGK, tokens, 1 if turn_TK is None else len(turn_TK), n_head, n_kv_head,
        head_dim, NORM_EPS, NORM=query_gain_K is not None, TURN=turn_TK is not None, **block,
    )  # fmt: skip
    return q_NHK, k_NGK


def heads_backward(
    into_q_NHK: Tensor, into_k_NGK: Tensor, into_v_NGK: Tensor, qkv_NR: Tensor,
    query_gain_K: Tensor | None, key_gain_K: Tensor | None, turn_TK: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    tokens, n_head, head_dim = into_q_NHK.shape
    n_kv_head, block = into_k_NGK.shape[1], _blocks(head_dim)
    into_qkv_NR = torch.empty_like(qkv_NR)
    rows = triton.cdiv(tokens * (n_head + 2 * n_kv_head), block["ROWS"])
    programs = min(rows, _PROGRAMS)
    into_gains_P2K = qkv_NR.new_empty(programs, 2, head_dim, dtype=torch.float32)
    _heads_backward[(programs,)](
        into_q_NHK, into_k_NGK, into_v_NGK, qkv_NR, _or(query_gain_K, qkv_NR),
        _or(key_gain_K, qkv_NR), _or(turn_TK, qkv_NR), into_qkv_NR, into_gains_P2K, tokens,
        1 if turn_TK is None else len(turn_TK), n_head, n_kv_head, head_dim, NORM_EPS,
        NORM=query_gain_K is not None, TURN=turn_TK is not None, **block,
    )  # fmt: skip
    if query_gain_K is None:
        return into_qkv_NR, None, None
    into_query_K, into_key_K = into_gains_P2K.sum(0)
    return into_qkv_NR, into_query_K, into_key_K


def _or(one: Tensor | None, other: Tensor) -> Tensor:
    """Return a pointer that the kernel leaves alone if there is none."""
    return other if one is None else one


def _blocks(head_dim: int) -> dict[str, int]:
    half = triton.next_power_of_2((head_dim + 1) // 2)
    return {"ROWS": max(1, _BLOCK // half), "HALF": half}
