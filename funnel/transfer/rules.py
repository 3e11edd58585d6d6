"""Choose one rule for each quantity on which rules disagree, and carry warm-up and weight decay.

AdamW's weights are a moving average of its updates over 1 / (lr × weight_decay) steps. The time
scale is that number as a share of a run of S steps (Wang and Aitchison 2024, arXiv 2405.13698, for
runs of one epoch; Bergsma et al. 2025, arXiv 2505.13738):

    tau = 1 / (lr × weight_decay × S) = B / (lr × weight_decay × D)

``lr`` is the peak rate of the matrices that decay. If weight_decay is copied, the time scale
changes with the rate and with the length of the run.
"""

import math
from typing import Any, Literal, TypeAlias

from pydantic import model_validator

from autoresearch.values import Frozen
from funnel.transfer.rates import BatchRule, DepthRule, HorizonRule, Rule, Seen, WidthRule
from funnel.transfer.support import RateRules

WarmupRule: TypeAlias = Literal["fraction", "untuned"]

WARMUP_RULES: dict[WarmupRule, Rule] = {
    "fraction": Rule(
        name="share of the schedule",
        paper="none: the shape of the schedule is kept at any length",
        formula="the same share of all steps",
    ),
    "untuned": Rule(
        name="untuned linear warm-up",
        paper="Ma and Yarats 2019, arXiv 1910.04209",
        formula="2 / (1 - beta2) steps",
    ),
}


def warmup_steps(rule: WarmupRule, *, fraction: float, steps: int, beta2: float) -> int:
    """Return the steps of linear warm-up, fewer than the run's steps."""
    wanted = fraction * steps if rule == "fraction" else math.ceil(2 / (1 - beta2))
    return min(round(wanted), steps - 1)


DecayRule: TypeAlias = Literal["power_lines", "timescale", "kept"]

FELT = 1.0
"""Longest time scale, as a share of the run, of a decay that affects the run."""

DECAY_RULES: dict[DecayRule, Rule] = {
    "power_lines": Rule(
        name="Power Lines, time scale",
        paper="Bergsma et al. 2025, arXiv 2505.13738",
        formula=(
            "tau × (TPP / TPP_base)^-0.527, TPP the tokens a parameter; where the small run cannot "
            "have felt its decay (none, or tau above 1), tau = 1.084 TPP^-0.527"
        ),
        seen=(Seen(what="tokens a parameter", low=20, high=1280),),
    ),
    "timescale": Rule(
        name="time scale kept",
        paper="Wang and Aitchison 2024, arXiv 2405.13698",
        formula="tau as it is",
    ),
    "kept": Rule(
        name="weight decay as it is",
        paper="none: what is done where nothing is carried",
        formula="weight_decay as it is",
    ),
}


def timescale(lr: float, weight_decay: float, steps: float) -> float:
    """Return the time scale as a share of the run; infinite without decay."""
    shrunk = lr * weight_decay * steps
    return 1 / shrunk if shrunk else float("inf")


def best_timescale(tokens_per_param: float) -> float:
    """Return the best time scale by Power Lines, as a share of the run."""
    return float(1.084 * tokens_per_param**-0.527)


def carried_timescale(rule: DecayRule, *, base: float, tpp_base: float, tpp: float) -> float:
    """Return the long run's time scale, by a rule other than ``kept``.

    :param base: the small run's time scale.
    :param tpp_base: tokens per parameter of the small run.
    :param tpp: tokens per parameter of the long run.
    """
    if rule == "timescale":
        return base
    if base > FELT:
        return best_timescale(tpp)
    return float(base * (tpp / tpp_base) ** -0.527)


class RuleChoice(Frozen):
    """One rule for each quantity on which rules disagree."""

    width: WidthRule = "mup"
    depth: DepthRule = "depth_mup"
    """Rule of the depth; the default is ``complete_p`` if ``in_config``, else ``depth_mup``."""
    horizon: HorizonRule = "delphi"
    batch: BatchRule = "step_law"
    weight_decay: DecayRule = "power_lines"
    warmup: WarmupRule = "fraction"
    in_config: bool = False
    """Whether the carried config sets ``mup_base_width`` and ``mup_base_depth``.

    The project's own trainer reads them. The config's ``lr`` is then the rate at the base width.
    """

    @model_validator(mode="before")
    @classmethod
    def _default_depth(cls, given: Any) -> Any:
        """Set the default of ``depth``.

        The project's own trainer has multipliers on residual branches; a launcher has none.
        """
        if isinstance(given, dict) and given.get("in_config") and "depth" not in given:
            return {**given, "depth": "complete_p"}
        return given

    @property
    def rates(self) -> RateRules:
        """Rules that a ladder can test."""
        return RateRules(width=self.width, depth=self.depth, horizon=self.horizon)


DEFAULT_RULES = RuleChoice()
