"""Carry a recipe that was tuned on a small, short run to another size and length.

The learning rate of the blocks' matrices becomes

    lr × width × depth × length × sqrt(B / B_base)

Under the maximal-update rule all other weights have the same factors without the width. By default
a law in the tokens sets the batch. The small run's batch does not, because a search with a fixed
number of steps does not find the best batch for a number of tokens. The weight decay follows
AdamW's time scale, and the warm-up keeps its share of the steps. The rates depend on the batch, so
another batch changes all of them.
"""

import math
from collections.abc import Iterator

from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt, Scalar
from funnel.targets.shape import Architecture
from funnel.transfer.leap import Leap, beyond_range, reasons
from funnel.transfer.rules import WidthRule, batches, step_law_lr
from trainer.code import SLOTS
from trainer.schema import Config

STRUCTURE = ("activation", "norm", "positions", "tie_embeddings", "seq_len")
OPTIONAL_STRUCTURE = ("qk_norm", "norm_place", "rope_base", "init_scale")
"""Fields that a shape may have; if it does not, they are the source's."""


class CarriedValue(Frozen):
    """One value of the proxy's config and of the target's."""

    name: str
    """Name of the field in Config."""
    proxy: Scalar
    target: Scalar
    rule: str
    """Rule that carried the value, in words."""


NO_RULE = frozenset({"kept", "none"})
"""Rules that change nothing; they are shown with the others, but not compared with them."""


class Disagreement(Frozen):
    """Results of several rules for one value, all else equal."""

    what: str
    taken: str
    """Rule that was used, a key of ``values``."""
    why: str
    """Reason for using it, in words."""
    values: dict[str, NonNegative]
    """Value by each rule."""

    @property
    def spread(self) -> float:
        """Ratio of the largest value to the smallest; infinite if the smallest is 0."""
        said = [value for rule, value in self.values.items() if rule not in NO_RULE]
        return max(said) / min(said) if min(said) else math.inf


class Carried(Frozen):
    """A recipe carried to a shape and a number of tokens, with the source of each value."""

    config: Config
    """Config of the target's shape; ``lr`` is the rate of the matrices in the blocks, which hold
    most parameters."""
    base_lr: Positive
    """Rate for a launcher that scales by the width itself, under ``mup``; else the blocks' rate."""
    base_width: PositiveInt
    """Width at which ``base_lr`` is the blocks' rate."""
    steps: PositiveInt
    """Steps of the run, which are the schedule's horizon."""
    tokens_per_step: PositiveInt
    warmup_fraction: NonNegative
    """Warm-up as a fraction of the schedule."""
    lr_rule: WidthRule
    """Rule that scaled the learning rate with the width."""
    carried: tuple[CarriedValue, ...]
    """One value for every field of the config, in its order."""
    disagreements: tuple[Disagreement, ...]
    """Values on which rules disagree, with the rule that was used."""
    notes: tuple[str, ...]
    """Notes on rules that are used outside their tested range."""


def carry(
    source: Config,
    *,
    horizon_steps: int,
    shape: Architecture,
    tokens: int,
    tokens_per_step: int | None = None,
    lr_rule: WidthRule = "mup",
) -> Carried:
    """Carry a small run's recipe to ``shape``, trained on ``tokens`` and fully annealed.

    :param source: config that was tuned on runs of ``horizon_steps``.
    :param horizon_steps: steps over which the source's rate decays.
    :param tokens_per_step: wanted tokens per step, rounded to whole sequences; None: chosen by the
        batch's rule.
    :param lr_rule: rule that scales the learning rate with the width.
    :raises TargetError: if the source's warm-up fills its whole schedule.
    """
    wanted = tokens_per_step or batches(tokens, source.tokens_per_step)["step_law"]
    leap = Leap(
        source=source,
        horizon_steps=horizon_steps,
        shape=shape,
        tokens=tokens,
        batch_size=max(1, math.floor(wanted / shape.seq_len + 0.5)),
        width=lr_rule,
    )
    config = _config(leap)
    why = reasons(leap, config, is_asked=tokens_per_step is not None)
    return Carried(
        config=config,
        base_lr=leap.base_lr,
        base_width=leap.base_width,
        steps=leap.steps,
        tokens_per_step=leap.tokens_per_step,
        warmup_fraction=leap.warmup_fraction,
        lr_rule=lr_rule,
        carried=tuple(_carried(source, config, why)),
        disagreements=tuple(_disagreements(leap, is_asked=tokens_per_step is not None)),
        notes=tuple(beyond_range(leap)),
    )


def _config(leap: Leap) -> Config:
    source, shape = leap.source, leap.shape
    optional = {name: getattr(shape, name, getattr(source, name)) for name in OPTIONAL_STRUCTURE}
    return source.model_copy(
        update={
            "n_layer": shape.n_layer,
            "n_head": shape.n_head,
            "n_kv_head": None if shape.kv_heads == shape.n_head else shape.kv_heads,
            "d_model": shape.d_model,
            "d_ff": shape.d_ff,
            **{name: getattr(shape, name) for name in STRUCTURE},
            **optional,
            "lr": leap.block_lr(),
            "lr_warmup": leap.warmups["fraction"],
            "weight_decay": leap.decays["power_lines"],
            "batch_size": leap.batch_size,
            "mup_base_width": None,
            "mup_base_depth": None,
        }
    )


def _carried(source: Config, config: Config, why: dict[str, str]) -> Iterator[CarriedValue]:
    unused = {slot.key for slot in SLOTS.values()} - source.code.keys()
    for name in (name for name in Config.model_fields if name not in unused):
        field = "kv_heads" if name == "n_kv_head" else name
        own, there = getattr(source, field), getattr(config, field)
        yield CarriedValue(
            name=name,
            proxy="none" if own is None else own,
            target="none" if there is None else there,
            rule=why[name],
        )


def _disagreements(leap: Leap, *, is_asked: bool) -> Iterator[Disagreement]:
    """Yield each value on which the rules disagree."""
    batch, given = leap.batches, is_asked and not leap.is_near
    if given:
        batch["given"] = leap.tokens_per_step
    block_lr, default = leap.block_lr(), "the default"
    # Step Law depends on the whole size, so no rule of depth applies with it.
    by_width = {
        rule: leap.block_lr(width=factor, depth=1.0 if rule == "step_law" else None)
        for rule, factor in leap.widths.items()
    }
    by_depth = {rule: leap.block_lr(depth=factor) for rule, factor in leap.depths.items()}
    by_length = {rule: leap.block_lr(length=factor) for rule, factor in leap.lengths.items()}
    searched = {"carried": block_lr, "step_law": step_law_lr(leap.params, leap.tokens)}
    rows: tuple[tuple[str, str, str, dict[str, float]], ...] = (
        ("lr, by width", leap.width, "lr_rule of the target", by_width),
        ("lr, by depth", "depth_mup", default, by_depth),
        ("lr, by length", "delphi", default, by_length),
        (
            "lr, with a proxy and without",
            "carried",
            "a rate that was searched for is known better than one that was not",
            searched,
        ),
        (
            "tokens a step",
            "given" if given else "step_law",
            "as given" if given else default,
            batch,
        ),
        ("weight_decay", "power_lines", default, leap.decays),
        ("lr_warmup", "fraction", default, dict(leap.warmups)),
    )
    for what, taken, why, values in rows:
        if len(set(values.values())) > 1:
            yield Disagreement(what=what, taken=taken, why=why, values=values)
