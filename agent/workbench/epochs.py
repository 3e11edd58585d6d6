"""Compute how many epochs each phase makes over a corpus, before a trial starts.

Up to four epochs of one text train nearly as well as new text would. The value of further epochs
falls towards nothing at about sixteen (Muennighoff et al. 2023, arXiv 2305.16264, section 5). A
ranking by runs that repeat their text also measures how well a config tolerates repetition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.menu.proxy_menu import ProxyMenu
from agent.settings.campaign import CampaignSettings
from autoresearch.values import Frozen, NonNegative, PositiveInt
from trainer.machine.flops import block_weights
from trainer.spec import CorpusInfo, gpt

STRESS_STEPS = 1000
"""Steps of a long run, if the campaign has no horizon."""
TOKENS_PER_PARAMETER = 20
"""Training tokens per parameter of a compute-optimal run (Hoffmann et al. 2022, arXiv 2203.15556).
"""
AS_GOOD_AS_NEW = 4.0
WORTH_NOTHING = 16.0


class Phase(Frozen):
    """A kind of run that will train on a corpus."""

    name: str
    tokens: PositiveInt


class PhaseEpochs(Frozen):
    """One phase on one corpus."""

    phase: Phase
    epochs: NonNegative

    def text(self) -> str:
        """``stress 1.3``"""
        return f"{self.phase.name} {epochs_text(self.epochs)}"


def phases_of(
    menu: ProxyMenu, settings: CampaignSettings, target_tokens: int | None = None
) -> tuple[Phase, ...]:
    """Return the phases that a campaign of these settings leads to, each at the baseline's tokens
    per step.

    They are its short runs, unless the budget is in seconds; the stress test; the ladder's rung of
    the baseline's size; and the target, if it is known.
    """
    baseline = gpt(menu.baseline)
    a_step = baseline.tokens_per_step
    budget = settings.budget
    phases = []
    if budget.unit != "seconds":  # the number of steps in so many seconds is not known beforehand
        each = a_step if budget.unit == "steps" else 1
        phases.append(Phase(name=f"{budget} a trial", tokens=int(budget.amount) * each))
    long_steps = settings.horizon_steps or STRESS_STEPS
    phases.append(Phase(name=f"stress of {long_steps:,} steps", tokens=long_steps * a_step))
    # Count parameters as a ladder does: without tables, which learn one token at a time.
    params = baseline.n_layer * block_weights(baseline)
    phases.append(
        Phase(
            name=f"ladder at {TOKENS_PER_PARAMETER} tokens a parameter",
            tokens=TOKENS_PER_PARAMETER * params,
        )
    )
    if target_tokens is not None:
        phases.append(Phase(name="target", tokens=target_tokens))
    return tuple(phases)


def epochs_of(phases: Sequence[Phase], train_tokens: int) -> tuple[PhaseEpochs, ...]:
    """Return how often each phase goes through this many tokens."""
    return tuple(PhaseEpochs(phase=one, epochs=one.tokens / train_tokens) for one in phases)


def epochs_text(epochs: float) -> str:
    """Format epochs: ``0.004``, ``1.3``, ``14,000``."""
    return f"{epochs:.2g}" if epochs < 10 else f"{float(f'{epochs:.2g}'):,.0f}"


def warnings(found: Sequence[PhaseEpochs], corpus: CorpusInfo) -> Iterator[str]:
    """Yield a sentence for each phase that the corpus is too small for."""
    for one in found:
        if one.epochs <= AS_GOOD_AS_NEW:
            continue
        worth = (
            "and what is repeated beyond sixteen times teaches next to nothing"
            if one.epochs > WORTH_NOTHING
            else "and beyond four times it teaches less than new text would"
        )
        yield (
            f"the corpus {corpus.name} is too small for {one.phase.name}: its "
            f"{corpus.train_tokens:,} tokens would be gone through {epochs_text(one.epochs)} "
            f"times, {worth}; use a larger one for it"
        )
