"""Explain in words which rule carried each value, and which rules exceed their tested range."""

from __future__ import annotations

from collections.abc import Iterator

from autoresearch.words import scalar_text
from funnel.transfer.batch import (
    BATCH_RULES,
    critical_batch,
)
from funnel.transfer.depth import DEPTH_RULES
from funnel.transfer.horizon import EXPONENTS, HORIZON_RULES, SMALL, STEEP_AT
from funnel.transfer.leap import Leap
from funnel.transfer.rules import RuleChoice
from funnel.transfer.weight_decay import DECAY_RULES, FELT, timescale
from funnel.transfer.width import WIDTH_RULES
from trainer.spec import Config

KEPT = {
    "lr_min_ratio": "as it is: a fraction of the rate",
    "grad_clip": "as it is: a norm over all parameters",
    "beta1": "as it is",
    "beta2": "as it is: published runs of all sizes and batches have 0.95",
    "precision": "as it is: to be proved on the target's own GPU",
    "schedule": "as it is: the form",
    "decay_share": "as it is: a share of the schedule",
}
"""Explanations of the fields that no rule changes."""

MUCH_WIDER = 8.0
"""Ratio of the tables' rate to the blocks' above which a note says that they share a decay."""


def reasons(leap: Leap, rules: RuleChoice, config: Config, *, asked: int | None) -> dict[str, str]:
    """Return the explanation of each field of Config, by name.

    :param asked: tokens per step that the user asked for; None: chosen by the batch's rule.
    """
    return {
        **dict.fromkeys(Config.model_fields, "the target's architecture"),
        **dict.fromkeys(config.code, "as it is: the function"),
        **KEPT,
        "lr": _lr(leap, rules),
        "lr_warmup": _warmup(leap, rules, config),
        "weight_decay": _decay(leap, rules, config),
        "batch_size": _batch(leap, rules, asked),
        "mup_base_width": _parametrised(rules, "width"),
        "mup_base_depth": _parametrised(rules, "depth"),
    }


def _parametrised(rules: RuleChoice, what: str) -> str:
    if rules.in_config:
        return f"the {what} from which the trainer carries lr itself"
    return f"not in the config: what is made of {what} is in its lr"


def _lr(leap: Leap, rules: RuleChoice) -> str:
    tokens = leap.tokens / leap.source_tokens
    parts = [
        f"width {scalar_text(leap.width(rules.width))} ({rules.width}: {leap.source.d_model} to "
        f"{leap.shape.d_model})",
        f"depth {scalar_text(leap.depth(rules.depth, rules.width))} ({rules.depth}: "
        f"{leap.source.n_layer} to "
        f"{leap.shape.n_layer} layers)",
        f"length and batch {scalar_text(leap.everywhere(rules.horizon))} ({rules.horizon}: "
        f"{tokens:.3g} times the tokens; square root of {_ratio(leap):.3g} times the batch)",
    ]
    rest = (
        "; tables, head and norms have all but the width's part, and the logits are multiplied by "
        f"{leap.base_width} / {leap.shape.d_model}"
        if rules.width == "mup"
        else "; for everything"
    )
    return "lr × " + " × ".join(parts) + " for the matrices in the blocks" + rest


def _ratio(leap: Leap) -> float:
    return leap.tokens_per_step / leap.source.tokens_per_step


def _warmup(leap: Leap, rules: RuleChoice, config: Config) -> str:
    if rules.warmup == "untuned":
        return f"2 / (1 - beta2) = {config.lr_warmup} steps of {leap.steps:,} (arXiv 1910.04209)"
    return (
        f"{leap.warmup_fraction:.3%} of the schedule: {leap.source.lr_warmup} of "
        f"{leap.horizon_steps} steps, {config.lr_warmup} of {leap.steps:,}"
    )


def _decay(leap: Leap, rules: RuleChoice, config: Config) -> str:
    if rules.weight_decay == "kept":
        return "as it is"
    block_lr = leap.block_lr(rules.width, rules.depth, rules.horizon)
    own = timescale(block_lr, config.weight_decay, leap.steps)
    small = leap.source_timescale
    wider = _wider(leap, rules)
    tables = f"; that is the blocks', the tables' {own / wider:.2g}" if wider > 1 else ""
    if rules.weight_decay == "power_lines" and small > FELT:
        return (
            "the proxy's run is too short to show the effect of its decay: AdamW's "
            f"time scale is {own:.3g} of the run by 1.084 TPP^-0.527 ({_papers(rules)}){tables}"
        )
    return (
        f"AdamW's time scale, {small:.3g} of the proxy's run and {own:.3g} of the target's "
        f"({_papers(rules)}){tables}"
    )


def _wider(leap: Leap, rules: RuleChoice) -> float:
    """Return the ratio of the tables' rate to the blocks'."""
    return leap.shape.d_model / leap.base_width if rules.width == "mup" else 1.0


def _papers(rules: RuleChoice) -> str:
    return DECAY_RULES[rules.weight_decay].paper.rpartition(", ")[2]


def _batch(leap: Leap, rules: RuleChoice, asked: int | None) -> str:
    sizes = f"{leap.tokens_per_step:,} tokens a step in sequences of {leap.shape.seq_len:,}"
    if asked and not leap.is_near(rules.batch):
        return f"{sizes}, as given; the rates and the steps follow"
    if rules.batch == "kept":
        return f"{sizes}: the proxy's {leap.source.tokens_per_step:,} to whole sequences"
    rule = BATCH_RULES[rules.batch]
    return f"{sizes}: {rule.formula} ({rule.paper}); the proxy had {leap.source.tokens_per_step:,}"


def beyond_range(leap: Leap, rules: RuleChoice) -> Iterator[str]:
    """Yield a note for each rule in force that is used outside its tested range."""
    seen_at = {
        "tokens": float(leap.tokens),
        "parameters": float(leap.params),
        "tokens a parameter": leap.tokens / leap.params,
    }
    for rule in (
        WIDTH_RULES[rules.width],
        DEPTH_RULES[rules.depth],
        HORIZON_RULES[rules.horizon],
        BATCH_RULES[rules.batch],
        DECAY_RULES[rules.weight_decay],
    ):
        yield from rule.beyond(**seen_at)
    if rules.horizon != "none" and leap.source_params < SMALL and leap.tokens > leap.source_tokens:
        steeper = (leap.tokens / leap.source_tokens) ** (STEEP_AT[5.0e7] - EXPONENTS[rules.horizon])
        yield (
            "small models' best rates were seen to fall faster with length (D^-0.70 at 50 M "
            "parameters, from 25 B tokens on, arXiv 2409.19913, table 5): by that this proxy's "
            f"would be {steeper:.2g} times the one taken"
        )
    if _wider(leap, rules) > MUCH_WIDER:
        yield (
            "one weight_decay serves blocks and tables, whose rate is "
            f"{_wider(leap, rules):.3g} times as high: so much faster they decay"
        )
    if leap.tokens_per_step > critical_batch(leap.tokens):
        yield (
            f"{leap.tokens_per_step:,} tokens a step pass the critical batch, "
            f"{critical_batch(leap.tokens):,.0f} (arXiv 2505.13738): its root is not a rule there"
        )
