"""A winning proxy's recipe, carried to its target.

The learning rate, with ``r = d_model of the proxy / d_model of the target``:

- ``mup``, the maximal-update parametrisation (Yang et al. 2022, arXiv 2203.03466, table 8, Adam):
  the matrices in the blocks, whose input is as wide as the model, get ``lr × r`` and start with
  their variance times ``r``; the tables, the head and the norms' gains keep ``lr`` and their start,
  and the logits are multiplied by ``r`` (for an untied head that is table 3's rate and variance,
  and it serves a tied one too). Attention scores go with 1 / head_dim, which is a constant where
  head_dim is kept. The base is the winning proxy: at its own width the rule changes nothing.
- ``sqrt_width``, the published shortcut: ``lr × sqrt(r)`` for everything.

Neither rule says anything about depth, the batch or the length of training: those rest on the proxy
having the target's depth-to-width ratio, on the batch being carried in tokens, and on the forecast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from autoresearch.errors import TargetError
from autoresearch.values import Frozen, NonNegative, PositiveInt, Scalar
from autoresearch.words import scalar_text
from funnel.target.architecture import TargetArchitecture
from funnel.target.shape import Shape
from trainer.spec import Config

LrRule: TypeAlias = Literal["mup", "sqrt_width"]

HYPERPARAMETERS = (
    ("lr_min_ratio", "as it is: a fraction of the rate"),
    ("grad_clip", "as it is: a norm over all parameters"),
    ("weight_decay", "as it is: a step shrinks every matrix by lr × weight_decay"),
    ("beta1", "as it is"),
    ("beta2", "as it is"),
    ("precision", "as it is: to be proved on the target's own GPU"),
    ("init_scale", "as it is"),
    ("schedule", "as it is"),
    ("decay_share", "as it is: a share of the schedule"),
)
"""What no rule changes, and why."""


class CarriedValue(Frozen):
    """One value on its way from the proxy to the target."""

    name: str
    """A field of Config."""
    proxy: Scalar
    target: Scalar
    rule: str
    """In plain words, what carried it."""


class Projection(Frozen):
    """The target's recipe and where each of its values is from."""

    target: TargetArchitecture
    source: Config
    """The proxy's."""
    lr_rule: LrRule
    config: Config
    """The target's: its shape, and the carried hyperparameters; its ``lr`` is that of the matrices
    in the blocks, which hold most of the parameters."""
    lr_by_rule: dict[str, float]
    """What each rule says of those, the chosen one included."""
    warmup_fraction: NonNegative
    """Warmup as a share of the schedule, the proxy's and the target's."""
    steps: PositiveInt
    """The target's steps: its schedule's horizon."""
    tokens_per_step: PositiveInt
    """The target's tokens per step."""
    carried: tuple[CarriedValue, ...]
    """Every field of the target's config, in its order."""

    @property
    def base_lr(self) -> float:
        """What a launcher is given: it divides by the width itself where the rule is ``mup``."""
        return self.source.lr if self.lr_rule == "mup" else self.config.lr

    @property
    def departures(self) -> tuple[str, ...]:
        """In words, what of the target's shape the proxy did not have: where there is anything,
        the recipe is carried further than it was tested."""
        return tuple(Shape.of(self.source).departures(Shape.of(self.target)))


def project(
    config: Config,
    target: TargetArchitecture,
    *,
    horizon_steps: int,
    lr_rule: LrRule = "mup",
) -> Projection:
    """The recipe of ``config`` for the target.

    :param horizon_steps: over how many steps the proxy's learning rate would have decayed.
    :raises TargetError: where the proxy's warm-up fills its whole schedule.
    """
    if config.lr_warmup >= horizon_steps:
        raise TargetError(
            f"a warm-up of {config.lr_warmup} steps in a schedule of {horizon_steps} cannot be "
            "carried as a fraction; give the horizon that the proxy was trained with"
        )
    batch_size = max(1, math.floor(config.tokens_per_step / target.seq_len + 0.5))
    tokens_per_step = batch_size * target.seq_len
    steps = -(-target.tokens // tokens_per_step)
    warmup_fraction = config.lr_warmup / horizon_steps
    lr_by_rule = _rates(config.lr, config.d_model, target.d_model)
    projected = _at_target(
        config,
        target,
        batch_size=batch_size,
        lr=lr_by_rule[lr_rule],
        lr_warmup=round(warmup_fraction * steps),
    )
    rules = {
        **dict.fromkeys(Config.model_fields, "the target's architecture"),
        **dict(HYPERPARAMETERS),
        "lr": _lr_words(config, target, lr_rule, lr_by_rule),
        "lr_warmup": (
            f"{warmup_fraction:.3%} of the schedule: {config.lr_warmup} of {horizon_steps} steps, "
            f"{projected.lr_warmup} of {steps:,}"
        ),
        "batch_size": _batch_words(config, target, tokens_per_step),
    }
    return Projection(
        target=target,
        source=config,
        lr_rule=lr_rule,
        config=projected,
        lr_by_rule=lr_by_rule,
        warmup_fraction=warmup_fraction,
        steps=steps,
        tokens_per_step=tokens_per_step,
        carried=tuple(_carried(config, projected, rules)),
    )


def _at_target(config: Config, target: TargetArchitecture, **carried: Any) -> Config:
    return Config(
        n_layer=target.n_layer,
        n_head=target.n_head,
        n_kv_head=None if target.n_kv_head == target.n_head else target.n_kv_head,
        d_model=target.d_model,
        d_ff=target.d_ff,
        activation=target.activation,
        norm=target.norm,
        positions=target.positions,
        tie_embeddings=target.tie_embeddings,
        qk_norm=target.qk_norm,
        norm_place=target.norm_place,
        rope_base=target.rope_base,
        seq_len=target.seq_len,
        **carried,
        **{name: getattr(config, name) for name, _ in HYPERPARAMETERS},
    )


def _rates(lr: float, d_proxy: int, d_target: int) -> dict[str, float]:
    ratio = d_proxy / d_target
    return {"mup": lr * ratio, "sqrt_width": lr * math.sqrt(ratio)}


def _carried(source: Config, projected: Config, rules: dict[str, str]) -> Iterator[CarriedValue]:
    for name, rule in rules.items():
        field = "kv_heads" if name == "n_kv_head" else name
        proxy, target = (
            "none" if (value := getattr(config, field)) is None else value
            for config in (source, projected)
        )
        yield CarriedValue(name=name, proxy=proxy, target=target, rule=rule)


def _lr_words(
    config: Config, target: TargetArchitecture, lr_rule: LrRule, lr_by_rule: dict[str, float]
) -> str:
    ratio = f"{config.d_model} / {target.d_model}"
    if lr_rule == "sqrt_width":
        other = scalar_text(lr_by_rule["mup"])
        return f"lr × sqrt({ratio}), for everything; the maximal-update rule says {other}"
    return (
        f"maximal update: lr × {ratio} for the matrices in the blocks; embedding, head and norms "
        f"keep {scalar_text(config.lr)}, and the logits are multiplied by {ratio}; sqrt_width says "
        f"{scalar_text(lr_by_rule['sqrt_width'])} for everything"
    )


def _batch_words(config: Config, target: TargetArchitecture, tokens_per_step: int) -> str:
    exact = f"tokens a step as they are: {config.tokens_per_step:,}"
    if tokens_per_step == config.tokens_per_step:
        return f"{exact} in sequences of {target.seq_len:,}"
    return f"{exact}, to whole sequences of {target.seq_len:,}: {tokens_per_step:,}"
