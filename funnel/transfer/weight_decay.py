"""Carry the weight decay by AdamW's time scale.

AdamW's weights are a moving average of its updates over 1 / (lr × weight_decay) steps. The time
scale is that number as a share of a run of S steps (Wang and Aitchison 2024, arXiv 2405.13698, for
runs of one epoch; Bergsma et al. 2025, arXiv 2505.13738):

    tau = 1 / (lr × weight_decay × S) = B / (lr × weight_decay × D)

``lr`` is the peak rate of the matrices that decay. If weight_decay is copied, the time scale
changes with the rate and with the length of the run.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from funnel.transfer.source import Rule, Seen

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
