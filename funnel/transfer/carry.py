"""Carry a recipe that was tuned on a small, short run to another size and length, by all rules.

The learning rate of the blocks' matrices becomes

    lr × width × depth × horizon × sqrt(B / B_base)

Under the maximal-update rule all other weights have the same factors without the width. By default
a law in the tokens sets the batch. The small run's batch does not, because a search with a fixed
number of steps does not find the best batch for a number of tokens. The weight decay follows
AdamW's time scale, and the warm-up keeps its share of the steps. The rates depend on the batch, so
another batch changes all of them.
"""

import math
from collections.abc import Iterator
from typing import Any

from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt, Scalar
from funnel.target.shape import Architecture
from funnel.transfer.leap import Leap, beyond_range, reasons
from funnel.transfer.rates import (
    BATCH_RULES,
    DEPTH_RULES,
    HORIZON_RULES,
    WIDTH_RULES,
    step_law_lr,
    tokens_a_step,
)
from funnel.transfer.rules import (
    DECAY_RULES,
    DEFAULT_RULES,
    WARMUP_RULES,
    LadderSupport,
    RuleChoice,
    Verdict,
)
from trainer.code import SLOTS
from trainer.spec import Config

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
    """Config of the target's shape.

    ``lr`` is the rate of the matrices in the blocks, which hold most parameters. If the config sets
    ``mup_base_width``, ``lr`` is the rate at that width.
    """
    base_lr: Positive
    """Rate for a launcher that scales by the width itself, under ``mup``; else the blocks' rate."""
    base_width: PositiveInt
    """Width at which ``base_lr`` is the blocks' rate."""
    steps: PositiveInt
    """Steps of the run, which are the schedule's horizon."""
    tokens_per_step: PositiveInt
    warmup_fraction: NonNegative
    """Warm-up as a fraction of the schedule."""
    rules: RuleChoice
    """Rules in force, which a ladder may have changed from those requested."""
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
    rules: RuleChoice = DEFAULT_RULES,
    support: LadderSupport | None = None,
) -> Carried:
    """Carry a small run's recipe to ``shape``, trained on ``tokens`` and fully annealed.

    :param source: config that was tuned on runs of ``horizon_steps``.
    :param horizon_steps: steps over which the source's rate decays.
    :param tokens_per_step: wanted tokens per step, rounded to whole sequences; None: chosen by the
        batch's rule.
    :param support: best rates of a ladder. If they decisively support other rules of width, depth
        and length than ``rules``, those are used.
    :raises TargetError: if the source's warm-up fills its whole schedule.
    """
    wanted = tokens_per_step or tokens_a_step(
        rules.batch, kept=source.tokens_per_step, tokens=tokens
    )
    leap = Leap(
        source=source,
        horizon_steps=horizon_steps,
        shape=shape,
        tokens=tokens,
        batch_size=max(1, math.floor(wanted / shape.seq_len + 0.5)),
    )
    verdict = (support or LadderSupport(best_rates=())).choose(rules.rates)
    rules = rules.model_copy(update=verdict.rules.model_dump())
    block_lr = leap.block_lr(rules.width, rules.depth, rules.horizon)
    base_lr = leap.base_lr(rules.width, rules.depth, rules.horizon)
    config = _config(leap, rules, block_lr, base_lr)
    why = reasons(leap, rules, config, asked=tokens_per_step)
    return Carried(
        config=config,
        base_lr=base_lr,
        base_width=leap.base_width,
        steps=leap.steps,
        tokens_per_step=leap.tokens_per_step,
        warmup_fraction=leap.warmup_fraction,
        rules=rules,
        carried=tuple(_carried(source, config, why)),
        disagreements=tuple(_disagreements(leap, rules, block_lr, verdict, tokens_per_step)),
        notes=tuple(beyond_range(leap, rules)),
    )


def _config(leap: Leap, rules: RuleChoice, block_lr: float, base_lr: float) -> Config:
    source, shape = leap.source, leap.shape
    says_mup = rules.in_config and rules.width == "mup"
    says_depth = rules.in_config and rules.depth == "complete_p"
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
            "lr": base_lr if says_mup else block_lr,
            "lr_warmup": leap.warmup(rules.warmup),
            "weight_decay": leap.weight_decay(rules.weight_decay, block_lr),
            "batch_size": leap.batch_size,
            "mup_base_width": leap.base_width if says_mup else None,
            "mup_base_depth": (source.mup_base_depth or source.n_layer) if says_depth else None,
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


def _disagreements(
    leap: Leap, rules: RuleChoice, block_lr: float, verdict: Verdict, asked: int | None
) -> Iterator[Disagreement]:
    """Yield each value on which the rules disagree."""
    default = "the default: no ladder tests it"
    given = asked is not None and not leap.is_near(rules.batch)
    width, depth, horizon = rules.width, rules.depth, rules.horizon
    batches: dict[str, float] = {
        rule: tokens_a_step(rule, kept=leap.source.tokens_per_step, tokens=leap.tokens)
        for rule in BATCH_RULES
    }
    if given:
        batches["given"] = leap.tokens_per_step
    by_width = {rule: leap.block_lr(rule, depth, horizon) for rule in WIDTH_RULES}
    by_depth = {rule: leap.block_lr(width, rule, horizon) for rule in DEPTH_RULES}
    by_length = {rule: leap.block_lr(width, depth, rule) for rule in HORIZON_RULES}
    rows: tuple[tuple[str, str, str, dict[Any, float]], ...] = (
        ("lr, by width", width, verdict.words, by_width),
        ("lr, by depth", depth, verdict.words, by_depth),
        ("lr, by length", horizon, verdict.words, by_length),
        (
            "lr, with a proxy and without",
            "carried",
            "a rate that was searched for is known better than one that was not",
            {"carried": block_lr, "step_law": step_law_lr(leap.params, leap.tokens)},
        ),
        (
            "tokens a step",
            "given" if given else rules.batch,
            "as given" if given else default,
            batches,
        ),
        (
            "weight_decay",
            rules.weight_decay,
            default,
            {rule: leap.weight_decay(rule, block_lr) for rule in DECAY_RULES},
        ),
        ("lr_warmup", rules.warmup, default, {rule: leap.warmup(rule) for rule in WARMUP_RULES}),
    )
    for what, taken, why, values in rows:
        if len(set(values.values())) > 1:
            yield Disagreement(what=what, taken=taken, why=why, values=values)
