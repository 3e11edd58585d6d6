"""Compute the model in numpy and fp64, one token's formulas at a time.

The code is written from the papers and shares nothing with the code that it checks.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trainer.schema import Config

Array = NDArray[np.float64]
EPS = 1e-5

erf = np.vectorize(math.erf, otypes=[np.float64])


def logits(weights: Mapping[str, Array], config: Config, tokens_T: NDArray[np.int64]) -> Array:
    """Return ``logits_TV`` of one sequence; ``weights`` have the torch backend's names."""
    x_TD = weights["embedding_VD"][tokens_T]
    if config.positions == "learned":
        x_TD = x_TD + weights["position_TD"][: len(tokens_T)]
    share = 1.0 if config.mup_base_depth is None else config.mup_base_depth / config.n_layer
    for layer in range(config.n_layer):
        block = {
            name.removeprefix(f"blocks.{layer}."): value
            for name, value in weights.items()
            if name.startswith(f"blocks.{layer}.")
        }
        x_TD = x_TD + share * _half(block, "attention", config, x_TD)
        x_TD = x_TD + share * _half(block, "feed_forward", config, x_TD)
    x_TD = _norm(x_TD, weights["norm.gain_D"], config.norm)
    head_VD = weights["embedding_VD" if config.tie_embeddings else "head_VD"]
    out_TV: Array = x_TD @ head_VD.T
    base = config.mup_base_width
    return out_TV if base is None else out_TV * base / config.d_model


def _half(block: Mapping[str, Array], name: str, config: Config, x_TD: Array) -> Array:
    if config.norm_place in {"pre", "sandwich"}:
        x_TD = _norm(x_TD, block[f"{name}_norm.gain_D"], config.norm)
    y_TD = (_attention if name == "attention" else _feed_forward)(block, config, x_TD)
    if config.norm_place in {"output", "sandwich"}:
        y_TD = _norm(y_TD, block[f"{name}_output_norm.gain_D"], config.norm)
    return y_TD


def _norm(x: Array, gain: Array, kind: str) -> Array:
    if kind == "layernorm":
        x = x - x.mean(-1, keepdims=True)
    scaled: Array = x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * gain
    return scaled


def _attention(block: Mapping[str, Array], config: Config, x_TD: Array) -> Array:
    heads, groups = config.n_head, config.n_kv_head or config.n_head
    size = config.d_model // heads
    rows_HKD = block["qkv_RD"].reshape(heads + 2 * groups, size, config.d_model)
    read = []
    for head in range(heads):
        group = head * groups // heads
        q_TK, k_TK, v_TK = (
            x_TD @ rows_HKD[place].T for place in (head, heads + group, heads + groups + group)
        )
        if config.qk_norm:
            q_TK = _norm(q_TK, block["query_gain_K"], "rmsnorm")
            k_TK = _norm(k_TK, block["key_gain_K"], "rmsnorm")
        if config.positions == "rotary":
            q_TK, k_TK = (_turned(x_TK, config.rope_base) for x_TK in (q_TK, k_TK))
        scores_TT = q_TK @ k_TK.T / math.sqrt(size)
        scores_TT[np.triu_indices(len(x_TD), 1)] = -np.inf
        weights_TT = np.exp(scores_TT - scores_TT.max(-1, keepdims=True))
        read.append(weights_TT / weights_TT.sum(-1, keepdims=True) @ v_TK)
    out: Array = np.concatenate(read, -1) @ block["out_DD"].T
    return out


def _turned(x_TK: Array, base: float) -> Array:
    """Rotate each pair (i, i + K/2), as a complex number, by position × base^(-2i/K)."""
    half = x_TK.shape[1] // 2
    angle_TP = np.outer(np.arange(len(x_TK)), base ** (-2 * np.arange(half) / x_TK.shape[1]))
    turned_TP = (x_TK[:, :half] + 1j * x_TK[:, half:]) * np.exp(1j * angle_TP)
    return np.concatenate((turned_TP.real, turned_TP.imag), 1)


def _feed_forward(block: Mapping[str, Array], config: Config, x_TD: Array) -> Array:
    up = x_TD @ block["up_FD"].T
    first, second = up[:, : config.d_ff], up[:, config.d_ff :]
    gelu = 0.5 * first * (1 + erf(first / math.sqrt(2)))
    hidden_TF = {
        "gelu": lambda: gelu,
        "relu2": lambda: np.maximum(first, 0) ** 2,
        "swiglu": lambda: first / (1 + np.exp(-first)) * second,
        "geglu": lambda: gelu * second,
    }[config.activation]()
    out: Array = hidden_TF @ block["down_DF"].T
    return out
