"""Read the architecture that the cloud run will train from a TOML file or a shipped target."""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import ConfigDict, Field, ValidationError, model_validator

from agent.menu.toml_files import TomlFiles, refuse_unknown
from autoresearch.errors import TargetError
from autoresearch.values import Frozen, PlainText, explain
from funnel.target.budget import (
    MONEY_KEYS,
    RATIO_KEYS,
    TOKENS_PER_PARAMETER,
    with_budget_spent,
)
from funnel.target.ratios import RatioName
from funnel.target.shape import ParameterCount
from trainer.spec import Activation

COUNT_TOLERANCE = 0.03
"""Largest relative difference between the declared parameters and those of the shape."""

# These bounds are far beyond any model and prevent overflow.
Extent: TypeAlias = Annotated[int, Field(gt=0, le=10**8)]
Total: TypeAlias = Annotated[int, Field(gt=0, le=10**18)]

_FILES = TomlFiles(noun="target", package="funnel.target", error=TargetError)


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
    :class:`~trainer.spec.Config`."""
    token_budget: Total | None = None
    """Tokens to train on; None: :data:`TOKENS_PER_PARAMETER` times all parameters."""
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


def parse_target(toml: str, source: str) -> TargetArchitecture:
    """Parse a target from TOML text.

    :param source: name of the text in messages.
    :raises TargetError: if the text is not a valid target; the message names the key and the fix.
    """
    document = _FILES.document(toml, source)
    try:
        keys = (*TargetArchitecture.model_fields, *RATIO_KEYS, *MONEY_KEYS)
        refuse_unknown(document, keys, "it")
        spent = with_budget_spent(
            document, lambda table: TargetArchitecture.model_construct(**table)
        )
        return TargetArchitecture.model_validate(spent)
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
