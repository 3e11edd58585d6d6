"""A recipe: every knob and constant of one training run."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    Discriminator,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationError,
    model_serializer,
    model_validator,
)

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

Activation: TypeAlias = Literal["gelu", "swiglu", "geglu", "relu2"]
GATED_ACTIVATIONS: frozenset[str] = frozenset({"swiglu", "geglu"})
"""Of a feed-forward block with a second branch, which the first one gates."""


class BaseConfig(Frozen):
    """One complete setting of whatever a trainer can be told: what the judge, the record, the
    proposers and the ranking know of a config, whichever trainer it is for."""

    @abstractmethod
    def canonical(self) -> dict[str, Scalar]:
        """The config as it is stored and hashed."""

    @property
    @abstractmethod
    def said(self) -> dict[str, Scalar]:
        """Every field that has a value: what two configs are compared by."""

    @abstractmethod
    def value(self, name: str) -> Any:
        """The value of one field; None where it has none."""

    @property
    @abstractmethod
    def tokens_per_step(self) -> int | None:
        """None where nobody but the trainer knows."""

    @property
    def config_hash(self) -> str:
        """SHA-256 of the canonical JSON: sorted keys, no spaces, shortest round-trip floats."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class CommandConfig(BaseConfig):
    """The knobs and constants of a menu that names a command: whatever the command may be told."""

    values: dict[str, Scalar]
    """By name, in the menu's order."""

    def canonical(self) -> dict[str, Scalar]:
        """See :meth:`BaseConfig.canonical`."""
        return dict(self.values)

    @property
    def said(self) -> dict[str, Scalar]:
        """See :attr:`BaseConfig.said`."""
        return dict(self.values)

    def value(self, name: str) -> Any:
        """See :meth:`BaseConfig.value`."""
        return self.values.get(name)

    @property
    def tokens_per_step(self) -> None:
        """The command's own affair."""
        return None

    def __hash__(self) -> int:
        return hash(frozenset(self.values.items()))


class Config(BaseConfig):
    """One complete setting of everything a recipe of our own GPT trainer is made of.

    Every field is required: a config says all of itself. A field that a later version adds must
    have a default, which :meth:`canonical` leaves out, so that the hash of an older config stands.
    """

    n_layer: PositiveInt
    n_head: PositiveInt
    d_model: PositiveInt
    d_ff: PositiveInt
    """Hidden width of the feed-forward block; for a gated one that of each of its two branches
    (Megatron's ``ffn_hidden_size``)."""
    activation: Activation
    """``swiglu`` and ``geglu`` gate with SiLU and GELU (Shazeer 2020, arXiv 2002.05202); ``relu2``
    is the square of ReLU (So et al. 2021, arXiv 2109.08668)."""
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
    qk_norm: Annotated[bool, Field(strict=True)] = False
    """RMS norm with a gain on each head's queries and keys, before positions (Dehghani et al. 2023,
    arXiv 2302.05442)."""
    norm_place: Literal["pre", "output", "sandwich"] = "pre"
    """Of each half of a block: at its input; at its output, before it is added to the residual
    stream (OLMo 2, arXiv 2501.00656); at both (Gemma 2, arXiv 2408.00118)."""
    rope_base: Positive = 10_000.0
    """The base of rotary positions' wavelengths; learned ones have none."""
    init_scale: Positive = 1.0
    """What the standard deviation of the blocks' matrices at the start is multiplied by."""
    schedule: Literal["cosine", "linear", "wsd"] = "cosine"
    """How the learning rate falls from ``lr`` to ``lr × lr_min_ratio`` between the warm-up and the
    horizon. ``wsd``: constant, then linear over the last ``decay_share`` (MiniCPM, arXiv
    2404.06395; Hägele et al. 2024, arXiv 2405.18392)."""
    decay_share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.2
    """Of ``wsd``: the last share of the horizon, in which the rate falls."""
    mup_base_width: PositiveInt | None = None
    """The ``d_model`` at which the maximal-update parametrisation (Yang et al. 2022, arXiv
    2203.03466, table 8) changes nothing, and from which it carries ``lr``; None: the standard
    parametrisation."""
    mup_base_depth: PositiveInt | None = None
    """The ``n_layer`` at which CompleteP (Dey et al. 2025, arXiv 2505.01618) changes nothing, and
    from which it carries ``lr``; None: residual branches are added as they are."""

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

    @model_serializer(mode="wrap")
    def _as_older_versions_wrote_it(
        self, dump: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Scalar | None]:
        """JSON says a later field only where it is not the default, so that older rows are written
        again as they were."""
        values: dict[str, Scalar | None] = dump(self)
        if info.mode != "json":
            return values
        return {name: value for name, value in values.items() if value != _SILENT.get(name, ...)}

    @property
    def gated(self) -> bool:
        """Whether the feed-forward block has a second branch, which its first one gates."""
        return self.activation in GATED_ACTIVATIONS

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.seq_len

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @property
    def width_factor(self) -> float:
        """``mup_base_width / d_model``: what the maximal-update parametrisation multiplies the
        blocks' matrices' learning rate, Adam epsilon and initial variance with, and the logits.

        Tables, head and gains keep theirs and start as at the base. Attention scores go with
        1 / sqrt(head_dim), so the rule holds where head_dim is kept. ``weight_decay`` stays what it
        says: a step shrinks a matrix by its own learning rate times that."""
        return 1.0 if self.mup_base_width is None else self.mup_base_width / self.d_model

    @property
    def depth_factor(self) -> float:
        """``mup_base_depth / n_layer``: what CompleteP (table 1, alpha = 1) multiplies both
        residual branches of a block with, and the Adam epsilon of its matrices. Learning rates and
        weight decay do not depend on the depth there."""
        return 1.0 if self.mup_base_depth is None else self.mup_base_depth / self.n_layer

    def canonical(self) -> dict[str, Scalar]:
        """The config as it is stored and hashed."""
        return self.model_dump(exclude_defaults=True)

    @property
    def said(self) -> dict[str, Scalar]:
        """Every field that has a value, defaults written out: what two configs are compared by."""
        return self.model_dump(exclude_none=True)

    def value(self, name: str) -> Any:
        """See :meth:`BaseConfig.value`."""
        return getattr(self, name)


_SILENT: dict[str, Scalar | None] = {
    name: field.default
    for name, field in Config.model_fields.items()
    if not field.is_required() and name != "n_kv_head"
}
"""Later fields' defaults; ``n_kv_head`` was written from the first."""


def _kind_of_config(value: Any) -> str:
    """A command's values stand in a table of their own; a GPT's fields never did."""
    named = value.get("values") if isinstance(value, dict) else getattr(value, "values", None)
    return "command" if isinstance(named, dict) else "gpt"


AnyConfig: TypeAlias = Annotated[
    Annotated[Config, Tag("gpt")] | Annotated[CommandConfig, Tag("command")],
    Discriminator(_kind_of_config),
]
"""A config of either trainer, as rows and specs hold it."""


def gpt(config: AnyConfig) -> Config:
    """The config of our own GPT trainer.

    :raises SpecError: where it is a command's, of which no shape is known.
    """
    if isinstance(config, Config):
        return config
    raise SpecError(
        "this campaign trains with a command of its own, and of what that trains only the knobs of "
        "its menu are known, no shape and no tokens; this is for menus of the built-in trainer"
    )


def make_config(values: dict[str, Any]) -> Config:
    """The Config of these values.

    :raises SpecError: naming the field.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise SpecError(f"no such config can be trained: {explain(error)}") from error


def difference(config: AnyConfig, baseline: AnyConfig | None) -> dict[str, Scalar]:
    """The fields of a config that are not the baseline's."""
    if baseline is None:
        return config.canonical()
    base = baseline.said
    return {name: value for name, value in config.said.items() if value != base.get(name)}
