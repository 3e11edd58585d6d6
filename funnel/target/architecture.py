"""Read the architecture that the cloud run will train from a TOML file or a shipped target.

A target may have a curriculum: phases that differ in sequence length, data or parallelism.
"""

import math
from collections.abc import Iterator, Sequence
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

Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Ranks = Annotated[int, Field(gt=0, le=4096)]
SUM_TOLERANCE = 1e-6


class Phase(Frozen):
    """One ``[[phases]]`` table of a target's file; the phases run in the order of the file."""

    model_config = ConfigDict(strict=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,23}$")]
    share: Share
    """Share of the run's tokens; the shares of all phases add up to 1."""
    seq_len: Annotated[int, Field(gt=0, le=10**8)] | None = None
    """Tokens per sequence; None: the target's."""
    mix: dict[Annotated[str, Field(pattern=r"^[\w.+-]{1,64}$")], Share] = Field(
        default_factory=dict
    )
    """Weights of prepared corpora by name, which sum to 1; empty: the user's DATA_PATH."""
    rate: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """Learning rate at the end of the phase, as a share of the peak.

    None: the rate that a single schedule over all tokens has there.
    """
    tensor: Ranks | None = None
    """Tensor-parallel GPUs; None: the plan chooses."""
    pipeline: Ranks | None = None
    """Pipeline stages; None: the plan chooses."""
    rope_base: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | None = None
    """Base of rotary positions; None: that of the previous phase."""


def phases_problems(phases: Sequence[Phase], *, seq_len: int, positions: str) -> Iterator[str]:
    """Yield each problem of the phases and its fix, in words."""
    names = [phase.name for phase in phases]
    for name in names:
        if names.count(name) > 1:
            yield f"two phases are called {name}; rename one of them"
    total = math.fsum(phase.share for phase in phases)
    if phases and abs(total - 1) > SUM_TOLERANCE:
        yield f"the phases' shares add up to {total:.6g}, not 1; correct them"
    rates = [phase.rate for phase in phases if phase.rate is not None]
    if rates != sorted(rates, reverse=True):
        yield f"the phases' rates rise ({', '.join(f'{rate:g}' for rate in rates)}); correct them"
    for phase in phases:
        weights = math.fsum(phase.mix.values())
        if phase.mix and abs(weights - 1) > SUM_TOLERANCE:
            yield f"the mix of phase {phase.name} adds up to {weights:.6g}, not 1; correct it"
        if positions == "learned" and phase.seq_len not in (None, seq_len):
            yield (
                f"phase {phase.name} has sequences of {phase.seq_len} and learned positions end at "
                f"{seq_len}; take rotary ones, or keep seq_len"
            )
        if positions == "learned" and phase.rope_base is not None:
            yield f"phase {phase.name} has a rope_base and positions are learned; leave it out"


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
    phases: Annotated[tuple[Phase, ...], Field(strict=False)] = ()
    """Phases of the curriculum; empty: a single phase."""
    lr_rule: Literal["mup", "sqrt_width", "step_law"] | None = None
    """Rule that scales the learning rate with the width; None: mup, unless a ladder contradicts
    it."""
    length_rule: Literal["delphi", "microsoft", "complete_d", "step_law", "none"] | None = None
    """Rule that scales the learning rate with the tokens; None: delphi, unless a ladder contradicts
    it."""
    batch_rule: Literal["step_law", "power_lines", "kept"] = "step_law"
    """Rule that sets the tokens per step."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        of_phases = phases_problems(self.phases, seq_len=self.seq_len, positions=self.positions)
        if problem := self._shape_problem() or self._count_problem() or next(of_phases, None):
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
