"""Turn a target's budget of parameters, tokens or money into a shape with the target's ratios.

A target file may give a shape in whole numbers (``d_model``, ``n_layer``, ``n_head``,
``n_kv_head``), or omit them and give ratios:

    width_per_layer  d_model / n_layer
    head_dim         width of a head
    kv_group         heads of queries per head of keys and values
    ffn_ratio        d_ff / d_model

The budget then determines the size. ``params`` is the size itself. ``token_budget`` alone gives one
twentieth of the tokens, and money alone gives the best size for it by the same rule (20 tokens per
parameter, Hoffmann et al. 2022, arXiv 2203.15556). Money is

    budget_usd = hours × gpu_hourly_usd,    FLOPs = hours × 3600 × gpu_tflops × 10^12

The file gives the hourly price of one GPU and the arithmetic of the model that it does per second.
With a shape in whole numbers, money determines only the tokens: FLOPs / FLOPs per token (Chowdhery
et al. 2022, arXiv 2204.02311, appendix B).
"""

import math
from typing import Any

from autoresearch.words import json_text
from funnel.target.equal_size import matrices
from trainer.machine.flops import TrainingFlops

RATIO_KEYS = ("width_per_layer", "kv_group")
MONEY_KEYS = ("budget_usd", "gpu_hourly_usd", "gpu_tflops")
SHAPE_KEYS = ("d_model", "n_layer", "n_head", "n_kv_head")
TOKENS_PER_PARAMETER = 20
"""Tokens per parameter of compute-optimal training: Hoffmann et al. 2022 (arXiv 2203.15556),
table 3, rounded."""
SIZED_BY = ("vocab_size", "seq_len", "activation", "positions", "tie_embeddings")
"""Fields that determine the size of a shape besides its ratios."""
ROUNDS = 40
"""Rounds that fit a size to its tables and its budget; each at least halves the error."""


def with_budget_spent(document: dict[str, Any], build: Any) -> dict[str, Any]:
    """Return a target file's table with a shape in whole numbers, its parameters and its tokens.

    They replace ratios and money; a table without these is returned unchanged.

    :param build: function that makes an unchecked architecture from a table.
    :raises ValueError: if the table is not valid; the message is a clause with the key and the fix.
    """
    table = {key: value for key, value in document.items() if key not in MONEY_KEYS}
    flops: float | None = None
    if any(key in document for key in MONEY_KEYS):
        usd, hourly, tflops = (_number(document, key) for key in MONEY_KEYS)
        flops = usd / hourly * 3600 * tflops * 1e12
        if "token_budget" in table:
            raise ValueError("budget_usd and token_budget are both there; remove one of the two")
    if any(key in table for key in RATIO_KEYS):
        table = _sized(table, flops, build)
    if flops is None or not {*SHAPE_KEYS, *SIZED_BY, "ffn_ratio"} <= table.keys():
        return table
    return table | {"token_budget": max(1, round(flops / _per_token(build(table))))}


def _number(table: dict[str, Any], key: str) -> float:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        seen = "is missing" if value is None else f"is {json_text(value)}"
        raise ValueError(f"{key} {seen}; give a number above 0")
    return float(value)


def _per_token(shape: Any) -> float:
    flops = TrainingFlops.of(shape, vocab_size=shape.vocab_size, seq_len=shape.seq_len)
    return flops.per_token


def _sized(table: dict[str, Any], flops: float | None, build: Any) -> dict[str, Any]:
    """Return the table with the shape of its ratios that fits the budget."""
    if given := [key for key in SHAPE_KEYS if key in table]:
        raise ValueError(f"{given[0]} and ratios are both there; remove one of the two")
    if missing := [key for key in SIZED_BY if key not in table]:
        raise ValueError(f"{missing[0]} is missing; give it")
    for key in ("vocab_size", "seq_len"):
        _number(table, key)
    ratios = {key: _number(table, key) for key in (*RATIO_KEYS, "head_dim", "ffn_ratio")}
    rest = {key: value for key, value in table.items() if key not in RATIO_KEYS}
    if "params" in table:
        wanted = _number(table, "params")
    elif flops is not None:
        wanted = math.sqrt(flops / (6 * TOKENS_PER_PARAMETER))  # a first estimate
    elif "token_budget" in table:
        wanted = _number(table, "token_budget") / TOKENS_PER_PARAMETER
    else:
        raise ValueError(
            "it has ratios and no budget; give params, token_budget, or budget_usd with "
            "gpu_hourly_usd and gpu_tflops"
        )
    blocks = wanted
    for _ in range(ROUNDS):
        shaped = rest | _shape(blocks, ratios, str(rest["activation"]))
        shape = build(shaped)
        count = shape.parameter_count
        is_total = rest.get("params_counted", "total") == "total"
        size = count.total if is_total else count.blocks
        if flops is not None and "params" not in rest:
            # The size whose training on 20 tokens per parameter costs all FLOPs.
            wanted = flops / _per_token(shape) / TOKENS_PER_PARAMETER
        blocks *= (wanted / size) ** 0.5
    return shaped | {"params": size}


def _shape(blocks: float, ratios: dict[str, float], activation: str) -> dict[str, Any]:
    """Return a shape in whole numbers with about this many weights in the blocks.

    d_ff is chosen last and compensates for the rounding of the others.
    """
    head_dim, group = round(ratios["head_dim"]), round(ratios["kv_group"])
    attention, k = 2 + 2 / group, matrices(activation)
    per_square = attention + k * ratios["ffn_ratio"]
    unit = head_dim * group
    wanted = (blocks * ratios["width_per_layer"] / per_square) ** (1 / 3)
    d_model = unit * max(1, round(wanted / unit))
    n_layer = max(1, round(blocks / (d_model**2 * per_square)))
    grain = 128 if d_model >= 1024 else 8
    left = (blocks / n_layer / d_model**2 - attention) / k
    d_ff = grain * max(1, round(left * d_model / grain))
    return {
        "d_model": d_model,
        "n_layer": n_layer,
        "n_head": d_model // head_dim,
        "n_kv_head": d_model // unit,
        "head_dim": head_dim,
        "ffn_ratio": d_ff / d_model,
    }
