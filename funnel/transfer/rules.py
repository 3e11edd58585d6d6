"""Choose one rule for each quantity on which rules disagree, and carry warm-up and weight decay.

Each rule of the learning rate multiplies the rate by a power of a quantity that a ladder varies. A
ladder's best rates at several sizes and lengths therefore test the rules. The ladder supports the
rules with the least squared errors, in units of the rates' standard errors. They replace the rules
in force only if their chi-squared is lower by more than :data:`DECISIVE`. That is two standard
errors if one rule is compared with one other.

AdamW's weights are a moving average of its updates over 1 / (lr × weight_decay) steps. The time
scale is that number as a share of a run of S steps (Wang and Aitchison 2024, arXiv 2405.13698, for
runs of one epoch; Bergsma et al. 2025, arXiv 2505.13738):

    tau = 1 / (lr × weight_decay × S) = B / (lr × weight_decay × D)

``lr`` is the peak rate of the matrices that decay. If weight_decay is copied, the time scale
changes with the rate and with the length of the run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from pydantic import model_validator

from autoresearch.values import Frozen, Positive, PositiveInt
from funnel.transfer.rates import (
    COVER_DEPTH,
    DEPTH_RULES,
    HORIZON_RULES,
    WIDTH_RULES,
    BatchRule,
    DepthRule,
    HorizonRule,
    Rule,
    Seen,
    WidthRule,
    batch_factor,
    depth_factor,
    horizon_factor,
    width_factor,
)

DECISIVE = 4.0
FITS = 3.0
"""Largest chi-squared per degree of freedom of rules that count as fitting."""


class BestRate(Frozen):
    """The best learning rate found at one size and length."""

    d_model: PositiveInt
    n_layer: PositiveInt | None = None
    """Depth; None if unknown. Depth is tested only if every rate of a ladder has it."""
    params: Positive
    """Parameters without embeddings."""
    tokens: Positive
    tokens_per_step: Positive
    lr: Positive
    """Best rate of the matrices in the blocks."""
    log_sd: Positive
    """Standard error of the natural logarithm of ``lr``.

    Half the spacing of a grid whose rates double is 0.35.
    """


RateRule: TypeAlias = Literal["width", "depth", "horizon"]


class RateRules(Frozen):
    """The rules that a ladder can test."""

    width: WidthRule
    depth: DepthRule
    horizon: HorizonRule

    def __str__(self) -> str:
        return f"{self.width}, {self.depth} and {self.horizon}"


class Verdict(Frozen):
    """The rules that a ladder supports."""

    rules: RateRules
    decisive: bool
    """Whether the ladder replaced the rules in force by decisively better ones."""
    words: str
    """Explanation in words."""


class LadderSupport(Frozen):
    """A ladder's best rates, which may choose among the rules."""

    best_rates: tuple[BestRate, ...]
    asked: tuple[RateRule, ...] = ()
    """Kinds of rules that the user chose, which the ladder does not change."""

    def within(self, asked: tuple[RateRule, ...]) -> LadderSupport:
        """Return the same support, restricted to the kinds of rules that the user did not choose.

        :param asked: kinds of rules that the user chose.
        """
        return self.model_copy(update={"asked": asked})

    def misfit(self, rules: RateRules) -> float:
        """Return the chi-squared of the rates under these rules, with a fitted common level."""
        logs = [math.log(rate.lr / self._factor(rules, rate)) for rate in self.best_rates]
        weights = [rate.log_sd**-2 for rate in self.best_rates]
        level = sum(w * y for w, y in zip(weights, logs, strict=True)) / sum(weights)
        return sum(w * (y - level) ** 2 for w, y in zip(weights, logs, strict=True))

    def choose(self, in_force: RateRules) -> Verdict:
        """Return the rules to use if these are in force."""
        if len(self.best_rates) < 2:
            return Verdict(rules=in_force, decisive=False, words="no ladder has tested it")
        misfits = {rules: self.misfit(rules) for rules in self._candidates(in_force)}
        best = min(misfits, key=lambda rules: (misfits[rules], rules != in_force))
        gain = misfits[in_force] - misfits[best]
        decisive = gain > DECISIVE
        taken = best if decisive else in_force
        if self.asked:
            unasked = self.within(()).choose(in_force)
            if unasked.rules != taken:
                words = f"as was asked, though {unasked.words}"
                return Verdict(rules=taken, decisive=decisive, words=words)
        if decisive:
            words = f"the ladder supports {taken} (chi-squared lower by {gain:.1f})"
        elif taken == best:
            words = f"the ladder supports {taken}"
        else:
            words = (
                f"the ladder cannot tell {taken} from {best} "
                f"(chi-squared {gain:.1f} apart, {DECISIVE:.0f} asked)"
            )
        misfit = misfits[taken] / (len(self.best_rates) - 1)
        if misfit > FITS:
            words += f"; no rule fits it well (chi-squared {misfit:.1f} a degree)"
        return Verdict(rules=taken, decisive=decisive, words=words)

    def _candidates(self, in_force: RateRules) -> Iterator[RateRules]:
        """Yield the rules in force, then all combinations that the ladder may choose instead."""
        yield in_force
        for width, depth, horizon in itertools.product(WIDTH_RULES, DEPTH_RULES, HORIZON_RULES):
            tested = self._tests_depth and width not in COVER_DEPTH
            rules = RateRules(width=width, depth=depth, horizon=horizon)
            kept = all(getattr(rules, name) == getattr(in_force, name) for name in self.asked)
            if kept and (tested or depth == in_force.depth):
                yield rules

    @property
    def _tests_depth(self) -> bool:
        return all(rate.n_layer is not None for rate in self.best_rates)

    def _factor(self, rules: RateRules, rate: BestRate) -> float:
        """Return the factor by which the rules carry the first best rate to another's size and
        length."""
        first = self.best_rates[0]
        factor = width_factor(
            rules.width,
            d_base=first.d_model,
            d_model=rate.d_model,
            size_ratio=rate.params / first.params,
        )
        if first.n_layer and rate.n_layer and self._tests_depth and rules.width not in COVER_DEPTH:
            factor *= depth_factor(rules.depth, base=first.n_layer, n_layer=rate.n_layer)
        return (
            factor
            * horizon_factor(rules.horizon, tokens_ratio=rate.tokens / first.tokens)
            * batch_factor(rate.tokens_per_step, first.tokens_per_step)
        )


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
