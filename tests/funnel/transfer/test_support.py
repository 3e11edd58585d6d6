"""A ladder's best rates choose among the rules, where they can."""

from __future__ import annotations

import math

import numpy as np
import pytest

from funnel.transfer.horizon import HorizonRule, horizon_factor
from funnel.transfer.support import BestRate, LadderSupport
from funnel.transfer.width import WIDTH_RULES, WidthRule, width_factor

SIZES = ((64, 5e4, 1e6), (96, 1.7e5, 4e6), (128, 4e5, 8e6), (192, 1.3e6, 4e7), (256, 3e6, 3e8))


def ladder(
    width: WidthRule, horizon: HorizonRule, *, log_sd: float, noise: float = 0.0, seed: int = 0
) -> LadderSupport:
    """Best rates that two rules make, with errors of ``noise``."""
    rng = np.random.default_rng(seed)
    d_base, n_base, t_base = SIZES[0]
    rates = []
    for d_model, params, tokens in SIZES:
        step = 4096 * math.sqrt(tokens / t_base)
        lr = (
            0.01
            * width_factor(width, d_base=d_base, d_model=d_model, size_ratio=params / n_base)
            * horizon_factor(horizon, tokens_ratio=tokens / t_base)
            * math.sqrt(step / 4096)
            * math.exp(noise * rng.standard_normal())
        )
        rates.append(
            BestRate(
                d_model=d_model,
                params=params,
                tokens=tokens,
                tokens_per_step=step,
                lr=lr,
                log_sd=log_sd,
            )
        )
    return LadderSupport(best_rates=tuple(rates))


@pytest.mark.parametrize("width", WIDTH_RULES)
@pytest.mark.parametrize("horizon", ["delphi", "complete_d", "step_law", "none"])
def test_the_rules_that_made_the_rates_fit_them(width: WidthRule, horizon: HorizonRule) -> None:
    made = ladder(width, horizon, log_sd=0.02)

    assert made.misfit(width, horizon) == pytest.approx(0, abs=1e-9)
    verdict = made.choose("mup", "delphi")
    assert made.misfit(verdict.width, verdict.horizon) <= 4
    assert verdict.decisive == (made.misfit("mup", "delphi") > 4)


def test_rules_that_the_ladder_contradicts_give_way() -> None:
    verdict = ladder("mup", "none", log_sd=0.1, noise=0.1).choose("mup", "complete_d")

    assert verdict.decisive
    assert verdict.horizon in {"none", "step_law"}
    assert "the ladder supports mup with " in verdict.words


def test_rules_that_it_cannot_tell_apart_stay() -> None:
    """A grid whose rates double says no more of a rate than half an octave."""
    verdict = ladder("mup", "microsoft", log_sd=0.35).choose("mup", "delphi")

    assert (verdict.width, verdict.horizon, verdict.decisive) == ("mup", "delphi", False)
    assert "cannot tell mup with delphi from" in verdict.words


def test_chance_rarely_overturns_a_rule_that_holds() -> None:
    """Of 200 ladders that the rules in force made: one in twenty, and allowed is one in ten."""
    overturned = sum(
        ladder("mup", "delphi", log_sd=0.2, noise=0.2, seed=seed).choose("mup", "delphi").decisive
        for seed in range(200)
    )
    assert overturned <= 20


def test_it_says_where_nothing_fits() -> None:
    rates = list(ladder("mup", "delphi", log_sd=0.05).best_rates)
    rates[2] = rates[2].model_copy(update={"lr": 10 * rates[2].lr})
    verdict = LadderSupport(best_rates=tuple(rates)).choose("mup", "delphi")

    assert "no rule fits it well" in verdict.words


@pytest.mark.parametrize("count", [0, 1])
def test_without_a_ladder_nothing_changes(count: int) -> None:
    alone = LadderSupport(best_rates=ladder("mup", "none", log_sd=0.1).best_rates[:count])

    verdict = alone.choose("sqrt_width", "none")
    assert (verdict.width, verdict.horizon, verdict.decisive) == ("sqrt_width", "none", False)
    assert verdict.words == "no ladder has tested it"
