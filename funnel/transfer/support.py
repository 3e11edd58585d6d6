"""What a ladder says of the rules: where the best rate was measured to move, and which had it.

Each rule multiplies the rate by a power of something that a ladder varies, so a ladder's best rates
at several sizes and lengths are a test of them. The rules that miss by the least squares, in the
standard errors of those rates, are the ones that the ladder supports, but only where they are
better than the ones in force by more than chance: a difference of chi-squared of
:data:`DECISIVE`, two standard errors where one rule is set against one other.
"""

from __future__ import annotations

import itertools
import math

from autoresearch.values import Frozen, Positive, PositiveInt
from funnel.transfer.horizon import EXPONENTS, HorizonRule, horizon_factor
from funnel.transfer.width import WIDTH_RULES, WidthRule, width_factor

DECISIVE = 4.0
FITS = 3.0
"""The most that chi-squared may be, a degree of freedom, of rules that are said to fit."""


class BestRate(Frozen):
    """The best learning rate found at one size and length."""

    d_model: PositiveInt
    params: Positive
    """Without embeddings."""
    tokens: Positive
    tokens_per_step: Positive
    lr: Positive
    """Of the matrices in the blocks."""
    log_sd: Positive
    """Standard error of the natural logarithm of ``lr``: half the spacing of a grid is 0.35 where
    its rates double."""


class Verdict(Frozen):
    """The rules of width and horizon that a ladder supports."""

    width: WidthRule
    horizon: HorizonRule
    decisive: bool
    """Whether the ladder tells them from the ones in force, and these are others."""
    words: str


class LadderSupport(Frozen):
    """A ladder's best rates."""

    best_rates: tuple[BestRate, ...]

    def misfit(self, width: WidthRule, horizon: HorizonRule) -> float:
        """Chi-squared of the rates under two rules, their common level fitted."""
        first = self.best_rates[0]
        logs, weights = [], []
        for rate in self.best_rates:
            factor = (
                width_factor(
                    width,
                    d_base=first.d_model,
                    d_model=rate.d_model,
                    size_ratio=rate.params / first.params,
                )
                * horizon_factor(horizon, tokens_ratio=rate.tokens / first.tokens)
                * math.sqrt(rate.tokens_per_step / first.tokens_per_step)
            )
            logs.append(math.log(rate.lr / factor))
            weights.append(rate.log_sd**-2)
        level = sum(w * y for w, y in zip(weights, logs, strict=True)) / sum(weights)
        return sum(w * (y - level) ** 2 for w, y in zip(weights, logs, strict=True))

    def choose(self, width: WidthRule, horizon: HorizonRule) -> Verdict:
        """The rules to take where these two are in force."""
        if len(self.best_rates) < 2:
            return Verdict(
                width=width, horizon=horizon, decisive=False, words="no ladder has tested it"
            )
        misfits = {pair: self.misfit(*pair) for pair in itertools.product(WIDTH_RULES, EXPONENTS)}
        best = min(misfits, key=lambda pair: (misfits[pair], pair != (width, horizon)))
        gain = misfits[width, horizon] - misfits[best]
        decisive = gain > DECISIVE
        taken = best if decisive else (width, horizon)
        free = len(self.best_rates) - 1
        return Verdict(
            width=taken[0],
            horizon=taken[1],
            decisive=decisive,
            words=_words(taken, best, gain, misfits[taken] / free, decisive),
        )


def _words(
    taken: tuple[str, str], best: tuple[str, str], gain: float, misfit: float, decisive: bool
) -> str:
    pair = " with ".join(taken)
    if decisive:
        said = f"the ladder supports {pair} (chi-squared lower by {gain:.1f})"
    elif taken == best:
        said = f"the ladder supports {pair}"
    else:
        said = (
            f"the ladder cannot tell {pair} from {' with '.join(best)} "
            f"(chi-squared {gain:.1f} apart, {DECISIVE:.0f} asked)"
        )
    poor = "" if misfit <= FITS else f"; no rule fits it well (chi-squared {misfit:.1f} a degree)"
    return said + poor
