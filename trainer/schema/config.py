"""Define a recipe: every knob and constant of one training run."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationError,
    create_model,
    model_serializer,
    model_validator,
)

from autoresearch.errors import SpecError
from autoresearch.values import (
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Scalar,
    explain,
)
from trainer.code import SLOTS, Slot, check_statically, normalize, slot_of
from trainer.schema.base_config import BaseConfig, CommandConfig

Activation: TypeAlias = Literal["gelu", "swiglu", "geglu", "relu2"]
GATED_ACTIVATIONS: frozenset[str] = frozenset({"swiglu", "geglu"})
"""Activations of feed-forward blocks whose second branch is gated by the first."""


def _source(slot: Slot, source: str) -> str:
    """Return a slot's source in its normal form, if every static rail passes it."""
    if why := check_statically(slot.name, source):
        raise ValueError(why.removeprefix(f"{slot.key}: "))
    return normalize(slot, source)


if TYPE_CHECKING:

    class _WithCode(BaseConfig): ...

else:
    _WithCode = create_model(
        "_WithCode",
        __base__=BaseConfig,
        **{
            slot.key: (Annotated[str, AfterValidator(partial(_source, slot))], "")
            for slot in SLOTS.values()
        },
    )
    # A field for each slot, named ``code.NAME``: the source of its function; "": what is built in.


_CODE = tuple(slot.key for slot in SLOTS.values())


class Config(_WithCode):
    """One complete recipe of the built-in GPT trainer.

    Every field of the first version is required. A field added later must have a default, which
    :meth:`canonical` omits, so that the hashes of older configs do not change.
    """

    is_printed: ClassVar[bool] = False

    n_layer: PositiveInt
    n_head: PositiveInt
    d_model: PositiveInt
    d_ff: PositiveInt
    """Hidden width of the feed-forward block; in a gated block, of each of its two branches
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
    """Learning rate at the schedule's horizon, as a fraction of ``lr``."""
    grad_clip: Positive
    weight_decay: NonNegative
    """Decoupled, applied only to matrices."""
    beta1: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    beta2: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]

    batch_size: PositiveInt
    """Sequences per step."""
    seq_len: PositiveInt
    """Tokens per sequence."""
    precision: Literal["fp32", "bf16", "fp8"]

    n_kv_head: PositiveInt | None = None
    """Heads of keys and values, each shared by ``n_head / n_kv_head`` heads of queries (grouped
    queries, Ainslie et al. 2023); None: as many as ``n_head``."""
    qk_norm: Annotated[bool, Field(strict=True)] = False
    """RMS norm with a gain on each head's queries and keys, before positions (Dehghani et al. 2023,
    arXiv 2302.05442)."""
    norm_place: Literal["pre", "output", "sandwich"] = "pre"
    """Place of the norm in each half of a block: at its input; at its output, before the residual
    addition (OLMo 2, arXiv 2501.00656); at both (Gemma 2, arXiv 2408.00118)."""
    rope_base: Positive = 10_000.0
    """Base of the wavelengths of rotary positions; unused by learned positions."""
    init_scale: Positive = 1.0
    """Multiplies the initial standard deviation of the blocks' matrices."""
    schedule: Literal["cosine", "linear", "wsd"] = "cosine"
    """Decay of the learning rate from ``lr`` to ``lr × lr_min_ratio`` between warm-up and horizon.
    ``wsd``: constant, then linear over the last ``decay_share`` (MiniCPM, arXiv 2404.06395; Hägele
    et al. 2024, arXiv 2405.18392)."""
    decay_share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.2
    """Last share of the horizon, in which the rate of ``wsd`` falls."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """``muon``: the blocks' matrices by Muon (Liu et al. 2025, arXiv 2502.16982), the rest by
    AdamW."""
    muon_lr_ratio: Positive = 1.0
    """Muon's learning rate, as a multiple of ``lr``; unused by AdamW."""
    mup_base_width: PositiveInt | None = None
    """The ``d_model`` at which the maximal-update parametrization (Yang et al. 2022, arXiv
    2203.03466, table 8) changes nothing, and from which it carries ``lr``; None: the standard
    parametrization."""
    mup_base_depth: PositiveInt | None = None
    """The ``n_layer`` at which CompleteP (Dey et al. 2025, arXiv 2505.01618) changes nothing, and
    from which it carries ``lr``; None: residual branches are added unscaled."""

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

    @model_validator(mode="after")
    def _code_is_used(self) -> Self:
        """Refuse a function that would never be called; drop one that is what is built in."""
        for key in sorted(self.model_fields_set.intersection(_CODE)):
            source = getattr(self, key)
            if not source:
                continue
            slot = SLOTS[key.removeprefix("code.")]
            choice = getattr(self, slot.chosen_by, "")
            builtin = slot.body(choice)
            if builtin is None:
                raise ValueError(
                    f"{key} is not used with {slot.chosen_by} {choice}; set {slot.chosen_by} to "
                    f"{' or '.join(slot.builtin)}, or leave {key} empty"
                )
            if source == normalize(slot, builtin):
                self.__dict__[key] = ""  # so that equal recipes have equal hashes
        return self

    @model_serializer(mode="wrap")
    def _read_older_form(
        self, dump: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Scalar | None]:
        """Omit a later field from JSON if it has its default, so that older rows are written back
        unchanged."""
        values: dict[str, Scalar | None] = dump(self)
        if info.mode != "json":
            return values
        return {name: value for name, value in values.items() if value != _SILENT.get(name, ...)}

    @property
    def warmup_steps(self) -> int:
        """See :attr:`~trainer.schema.base_config.BaseConfig.warmup_steps`."""
        return self.lr_warmup

    @property
    def code(self) -> dict[str, str]:
        """Sources by key, of the slots whose function is not the one that is built in."""
        return {key: source for key in _CODE if (source := getattr(self, key))}

    def function(self, name: str, source: str) -> str:
        """Return the source of a slot's function, or of what is built in if it is empty."""
        slot = slot_of(name)
        body = slot.body(getattr(self, slot.chosen_by, ""))
        return source or normalize(slot, body or "")

    @property
    def gated(self) -> bool:
        """Whether the feed-forward block has a second branch, gated by its first one."""
        return self.activation in GATED_ACTIVATIONS

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.seq_len

    @property
    def kv_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @property
    def width_factor(self) -> float:
        """``mup_base_width / d_model``, the factor of the maximal-update parametrization.

        It multiplies the blocks' matrices' learning rate, Adam epsilon and initial variance, and
        the logits. Tables, head and gains keep theirs and start as at the base. Attention scores
        scale with 1 / sqrt(head_dim), so the rule holds if head_dim is kept. ``weight_decay`` is
        unchanged: a step shrinks a matrix by its own learning rate times that.
        """
        return 1.0 if self.mup_base_width is None else self.mup_base_width / self.d_model

    @property
    def depth_factor(self) -> float:
        """``mup_base_depth / n_layer``, the factor of CompleteP (table 1, alpha = 1). It multiplies
        both residual branches of a block, and the Adam epsilon of its matrices. Its learning rates
        and weight decay do not depend on depth."""
        return 1.0 if self.mup_base_depth is None else self.mup_base_depth / self.n_layer

    def canonical(self) -> dict[str, Scalar]:
        """Return the config as it is stored and hashed."""
        return self.model_dump(exclude_defaults=True)

    @property
    def said(self) -> dict[str, Scalar]:
        """Every field that has a value, defaults included; configs are compared by these."""
        return {name: value for name, value in self.__dict__.items() if value is not None}

    def value(self, name: str) -> Any:
        """See :meth:`BaseConfig.value`."""
        return getattr(self, name)


_SILENT: dict[str, Scalar | None] = {
    name: field.default
    for name, field in Config.model_fields.items()
    if not field.is_required() and name != "n_kv_head"
}
"""Defaults of later fields; ``n_kv_head`` was written from the first version on."""


def _kind_of_config(value: Any) -> str:
    """Return which trainer a config is for: only a command's config has a table of values."""
    named = value.get("values") if isinstance(value, dict) else getattr(value, "values", None)
    return "command" if isinstance(named, dict) else "gpt"


AnyConfig: TypeAlias = Annotated[
    Annotated[Config, Tag("gpt")] | Annotated[CommandConfig, Tag("command")],
    Discriminator(_kind_of_config),
]
"""Config of either trainer, as rows and specs hold it."""


def gpt(config: AnyConfig) -> Config:
    """Return a config of the built-in GPT trainer.

    :raises SpecError: if it is a command's, whose shape is unknown.
    """
    if isinstance(config, Config):
        return config
    raise SpecError(
        "this campaign trains with a command, and only the knobs of its menu are known, no shape "
        "and no tokens; use a menu of the built-in trainer"
    )


def make_config(values: dict[str, Any]) -> Config:
    """Return the Config of these values.

    :raises SpecError: naming the field.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise SpecError(f"no such config can be trained: {explain(error)}") from error
