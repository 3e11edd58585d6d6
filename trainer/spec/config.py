"""A recipe: every knob and constant of one training run."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from autoresearch.errors import SpecError
from autoresearch.values import (
    Frozen,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Scalar,
    explain,
)


class Config(Frozen):
    """One complete setting of everything a recipe is made of.

    Every field is required: a config says all of itself. A field that a later version adds must
    have a default, which :meth:`canonical` leaves out, so that the hash of an older config stands.
    """

    n_layer: PositiveInt
    n_head: PositiveInt
    d_model: PositiveInt
    d_ff: PositiveInt
    """Hidden width of the feed-forward block; for SwiGLU that of each of its two branches
    (Megatron's ``ffn_hidden_size``)."""
    activation: Literal["gelu", "swiglu"]
    norm: Literal["layernorm", "rmsnorm"]
    positions: Literal["learned", "rotary"]
    tie_embeddings: Annotated[bool, Field(strict=True)]

    lr: Positive
    lr_warmup: NonNegativeInt
    """Steps of linear warm-up."""
    lr_min_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    """The learning rate at the schedule's horizon, as a fraction of ``lr``."""
    grad_clip: Positive
    weight_decay: NonNegative
    """Decoupled, applied to matrices only."""
    beta1: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    beta2: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]

    batch_size: PositiveInt
    """Sequences a step."""
    seq_len: PositiveInt
    """Tokens a sequence."""
    precision: Literal["fp32", "bf16", "fp8"]

    n_kv_head: PositiveInt | None = None
    """Heads of keys and values, each shared by ``n_head / n_kv_head`` heads of queries (grouped
    queries, Ainslie et al. 2023); None: one for each, as many as ``n_head``."""

    @model_validator(mode="after")
    def _shape_is_whole(self) -> Self:
        if self.d_model % self.n_head:
            raise ValueError(f"d_model {self.d_model} is not a multiple of n_head {self.n_head}")
        if self.n_kv_head is not None and self.n_head % self.n_kv_head:
            raise ValueError(
                f"n_head {self.n_head} is not a multiple of n_kv_head {self.n_kv_head}"
            )
        if self.positions == "rotary" and (self.d_model // self.n_head) % 2:
            raise ValueError(
                f"rotary positions need an even head_dim, not {self.d_model // self.n_head}"
            )
        return self

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.seq_len

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    def canonical(self) -> dict[str, Scalar]:
        """The config as it is stored and hashed."""
        return self.model_dump(exclude_defaults=True)

    @property
    def config_hash(self) -> str:
        """SHA-256 of the canonical JSON: sorted keys, no spaces, shortest round-trip floats."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def make_config(values: dict[str, Any]) -> Config:
    """The Config of these values.

    :raises SpecError: naming the field.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise SpecError(f"no such config can be trained: {explain(error)}") from error


def difference(config: Config, baseline: Config | None) -> dict[str, Scalar]:
    """The fields of a config that are not the baseline's."""
    base = baseline.canonical() if baseline else {}
    return {name: value for name, value in config.canonical().items() if value != base.get(name)}
