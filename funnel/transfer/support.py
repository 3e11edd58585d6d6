"""Test the rules of the learning rate against the best rates that a ladder found.

Each rule multiplies the rate by a power of a quantity that a ladder varies. A ladder's best rates
at several sizes and lengths therefore test the rules. The ladder supports the rules with the least
squared errors, in units of the rates' standard errors. They replace the rules in force only if
their chi-squared is lower by more than :data:`DECISIVE`. That is two standard errors if one rule is
compared with one other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Literal, TypeAlias

from autoresearch.values import Frozen, Positive, PositiveInt
from funnel.transfer.rates import (
    COVER_DEPTH,
    DEPTH_RULES,
    HORIZON_RULES,
    WIDTH_RULES,
    DepthRule,
    HorizonRule,
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
