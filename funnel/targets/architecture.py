"""Read the architecture that the cloud run will train from a TOML file or a shipped target.

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
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import ConfigDict, Field, ValidationError, model_validator

from agent.menu.files import TomlFiles, refuse_unknown
from autoresearch.errors import TargetError
from autoresearch.values import Frozen, PlainText, explain
from autoresearch.words import json_text
from funnel.targets.ratios import RatioName, matrices
from funnel.targets.shape import ParameterCount
from trainer.machine.flops import TrainingFlops
from trainer.schema import Activation

COUNT_TOLERANCE = 0.03
"""Largest relative difference between the declared parameters and those of the shape."""

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


# These bounds are far beyond any model and prevent overflow.
Extent: TypeAlias = Annotated[int, Field(gt=0, le=10**8)]
Total: TypeAlias = Annotated[int, Field(gt=0, le=10**18)]

_FILES = TomlFiles(noun="target", package="funnel.targets", error=TargetError)


class TargetArchitecture(Frozen):
    """A decoder-only transformer whose declared size is that of its shape."""

    model_config = ConfigDict(strict=True)

    name: Annotated[str, Field(pattern=r"^[\w.:+-]{1,48}$")]
    doc: PlainText = ""
    params: Total
    """Declared number of parameters, counted according to ``params_counted``."""
    params_counted: Literal["total", "without_embeddings"] = "total"
    """``without_embeddings`` excludes the tables of tokens and of learned positions, and an untied
    head."""
    d_model: Extent
    n_layer: Extent
    n_head: Extent
    n_kv_head: Extent
    """Heads of keys and values; if equal to ``n_head``, attention is multi-head."""
    head_dim: Extent
    ffn_ratio: Annotated[float, Field(gt=0, le=1e4, allow_inf_nan=False)]
    """d_ff / d_model."""
    activation: Activation
    norm: Literal["layernorm", "rmsnorm"]
    positions: Literal["learned", "rotary"]
    seq_len: Extent
    """Tokens per sequence in pretraining."""
    vocab_size: Extent
    tie_embeddings: bool
    qk_norm: bool = False
    norm_place: Literal["pre", "output", "sandwich"] = "pre"
    rope_base: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10_000.0
    """Base of the rotary positions; this field and the two above match
    :class:`~trainer.schema.Config`."""
    token_budget: Total | None = None
    """Tokens to train on; None: :data:`TOKENS_PER_PARAMETER` times all parameters."""
    bytes_per_token: Annotated[float, Field(ge=0.1, le=100)] | None = None
    """Mean UTF-8 bytes per token of its tokenizer on the text it trains on; None if unknown."""
    fixed: Annotated[tuple[RatioName, ...], Field(strict=False)] = ()
    """Ratios that must not change; the others may be searched and are carried back."""
    lr_rule: Literal["mup", "sqrt_width"] = "mup"
    """Rule that scales the learning rate with the width."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if problem := self._shape_problem() or self._count_problem():
            raise ValueError(problem)
        return self

    def _shape_problem(self) -> str | None:
        if self.head_dim * self.n_head != self.d_model:
            return (
                f"head_dim {self.head_dim} × n_head {self.n_head} is "
                f"{self.head_dim * self.n_head}, not d_model {self.d_model}; correct one of them"
            )
        if self.n_head % self.n_kv_head:
            return (
                f"n_head {self.n_head} is not a multiple of n_kv_head {self.n_kv_head}; correct "
                "one of them"
            )
        if self.positions == "rotary" and self.head_dim % 2:
            return f"rotary positions need an even head_dim, not {self.head_dim}; correct it"
        width = self.ffn_ratio * self.d_model
        # A ratio such as 8/3 may be written with any number of digits.
        if self.d_ff < 1 or abs(width - self.d_ff) > 1e-6 * width:
            return (
                f"ffn_ratio {self.ffn_ratio:.15g} × d_model {self.d_model} is {width:.6g}, not a "
                "whole d_ff; correct ffn_ratio"
            )
        return None

    def _count_problem(self) -> str | None:
        count = self.parameter_count
        counted = count.total if self.params_counted == "total" else count.blocks
        off = abs(counted / self.params - 1)
        if off <= COUNT_TOLERANCE:
            return None
        words = {"total": "all of them", "without_embeddings": "without embeddings and head"}
        return (
            f"its shape has {counted:,} parameters ({words[self.params_counted]}) and params says "
            f"{self.params:,}, {off:.1%} apart where {COUNT_TOLERANCE:.0%} is allowed; correct "
            "the shape, params or params_counted"
        )

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values, under Config's name for them."""
        return self.n_kv_head

    @property
    def d_ff(self) -> int:
        """Hidden width of the feed-forward block."""
        return round(self.ffn_ratio * self.d_model)

    @property
    def parameter_count(self) -> ParameterCount:
        """Number of parameters of the shape."""
        return ParameterCount.of(self, self.vocab_size)

    @property
    def total_params(self) -> int:
        """All parameters of the shape, embeddings included."""
        return self.parameter_count.total

    @property
    def tokens(self) -> int:
        """The target's token budget, else 20 tokens per parameter."""
        return self.token_budget or TOKENS_PER_PARAMETER * self.total_params

    @property
    def flops(self) -> TrainingFlops:
        """FLOPs of training on one token."""
        return TrainingFlops.of(self, vocab_size=self.vocab_size, seq_len=self.seq_len)

    def reshaped(self, changes: dict[str, Any]) -> Self:
        """Return the target with another shape, its declared size, and the same token budget."""
        values = dict(self) | changes | {"token_budget": self.tokens}
        count = self.model_construct(**values).parameter_count
        total = self.params_counted == "total"
        return self.model_validate(values | {"params": count.total if total else count.blocks})


def parse_target(toml: str, source: str) -> TargetArchitecture:
    """Parse a target from TOML text.

    :param source: name of the text in messages.
    :raises TargetError: if the text is not a valid target; the message names the key and the fix.
    """
    document = _FILES.document(toml, source)
    try:
        keys = (*TargetArchitecture.model_fields, *RATIO_KEYS, *MONEY_KEYS)
        refuse_unknown(document, keys, "it")
        return TargetArchitecture.model_validate(_with_budget_spent(document))
    except ValidationError as error:
        raise TargetError(f"target {source} cannot be used: {explain(error)}") from error
    except ValueError as error:
        raise TargetError(f"target {source} cannot be used: {error}") from error


def shipped_targets() -> list[str]:
    """Return the names of the shipped targets, in order."""
    return _FILES.names()


def load_target(name_or_path: str) -> TargetArchitecture:
    """Load a shipped target by its name, or a target from a file.

    :raises TargetError: if there is no such target, or it is not valid.
    """
    return parse_target(_FILES.text(name_or_path), name_or_path)


def _with_budget_spent(document: dict[str, Any]) -> dict[str, Any]:
    """Return a target file's table with a shape in whole numbers, its parameters and its tokens.

    They replace ratios and money; a table without these is returned unchanged.

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
        table = _sized(table, flops)
    if flops is None or not {*SHAPE_KEYS, *SIZED_BY, "ffn_ratio"} <= table.keys():
        return table
    return table | {
        "token_budget": max(
            1, round(flops / TargetArchitecture.model_construct(**table).flops.per_token)
        )
    }


def _number(table: dict[str, Any], key: str) -> float:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        seen = "is missing" if value is None else f"is {json_text(value)}"
        raise ValueError(f"{key} {seen}; give a number above 0")
    return float(value)


def _sized(table: dict[str, Any], flops: float | None) -> dict[str, Any]:
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
        shape = TargetArchitecture.model_construct(**shaped)
        count = shape.parameter_count
        is_total = rest.get("params_counted", "total") == "total"
        size = count.total if is_total else count.blocks
        if flops is not None and "params" not in rest:
            # The size whose training on 20 tokens per parameter costs all FLOPs.
            wanted = flops / shape.flops.per_token / TOKENS_PER_PARAMETER
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
