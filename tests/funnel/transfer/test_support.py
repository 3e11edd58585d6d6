"""A ladder's best rates select among the rules, if they can distinguish them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from funnel.transfer.rates import (
    DEPTH_RULES,
    WIDTH_RULES,
    depth_factor,
    horizon_factor,
    width_factor,
)
from funnel.transfer.support import BestRate, LadderSupport, RateRules

SIZES = ((64, 2, 1e6), (96, 3, 4e6), (128, 4, 8e6), (192, 6, 4e7), (256, 8, 3e8))
"""Width, depth and tokens of each rung."""
DEFAULT = RateRules(width="mup", depth="depth_mup", horizon="delphi")


def params(d_model: int, n_layer: int) -> float:
    return 12.0 * d_model**2 * n_layer


def ladder(rules: RateRules, *, log_sd: float, noise: float = 0.0, seed: int = 0) -> LadderSupport:
    """Return best rates that follow the given rules, with errors of ``noise``."""
    rng = np.random.default_rng(seed)
    d_base, l_base, t_base = SIZES[0]
    rates = []
    for d_model, n_layer, tokens in SIZES:
        size, step = params(d_model, n_layer), 4096 * math.sqrt(tokens / t_base)
        ratio = size / params(d_base, l_base)
        lr = 0.01 * width_factor(rules.width, d_base=d_base, d_model=d_model, size_ratio=ratio)
        lr *= horizon_factor(rules.horizon, tokens_ratio=tokens / t_base) * math.sqrt(step / 4096)
        lr *= math.exp(noise * rng.standard_normal())
        if rules.width != "step_law":
            lr *= depth_factor(rules.depth, base=l_base, n_layer=n_layer)
        rates.append(
            BestRate(
                d_model=d_model, n_layer=n_layer, params=size, tokens=tokens,
                tokens_per_step=step, lr=lr, log_sd=log_sd,
            )
        )  # fmt: skip
    return LadderSupport(best_rates=tuple(rates))


@pytest.mark.parametrize(
    ("width", "depth", "horizon"),
    list(itertools.product(WIDTH_RULES, DEPTH_RULES, ["delphi", "complete_d", "step_law", "none"])),
)
def test_the_rules_that_made_the_rates_fit_them(width: str, depth: str, horizon: str) -> None:
    rules = RateRules.model_validate({"width": width, "depth": depth, "horizon": horizon})
    made = ladder(rules, log_sd=0.02)
    assert made.misfit(rules) == pytest.approx(0, abs=1e-9)
    verdict = made.choose(DEFAULT)
    assert made.misfit(verdict.rules) <= 4
    assert verdict.decisive == (made.misfit(DEFAULT) > 4)


def test_rules_that_the_ladder_contradicts_give_way() -> None:
    truth = DEFAULT.model_copy(update={"horizon": "none"})
    in_force = DEFAULT.model_copy(update={"horizon": "complete_d"})
    verdict = ladder(truth, log_sd=0.1, noise=0.1).choose(in_force)
    assert verdict.decisive
    assert verdict.rules.horizon in {"none", "step_law"}


def test_a_rule_that_was_asked_for_is_not_overturned() -> None:
    truth = DEFAULT.model_copy(update={"width": "sqrt_width", "horizon": "none"})
    in_force = DEFAULT.model_copy(update={"horizon": "complete_d"})
    made = ladder(truth, log_sd=0.02)
    free, held = made.choose(in_force), made.within(("horizon",)).choose(in_force)
    assert free.rules.horizon != "complete_d"
    assert held.rules.horizon == "complete_d"
    assert held.words == f"as was asked, though {free.words}"
    assert made.within(("width", "depth", "horizon")).choose(in_force).rules == in_force


def test_rules_that_it_cannot_tell_apart_stay() -> None:
    """A grid of doubling rates locates the best rate only to within half an octave. Chance rejects
    the rules in about one ladder of twenty; the test allows one in ten."""
    made = ladder(DEFAULT.model_copy(update={"horizon": "microsoft"}), log_sd=0.35)
    verdict = made.choose(DEFAULT)
    assert (verdict.rules, verdict.decisive) == (DEFAULT, False)
    drawn = (ladder(DEFAULT, log_sd=0.2, noise=0.2, seed=seed) for seed in range(200))
    assert sum(made.choose(DEFAULT).decisive for made in drawn) <= 20


def test_rates_without_depth_leave_its_rule_alone() -> None:
    made = ladder(DEFAULT.model_copy(update={"depth": "complete_p"}), log_sd=0.05)
    flat = LadderSupport(
        best_rates=tuple(rate.model_copy(update={"n_layer": None}) for rate in made.best_rates)
    )
    assert made.choose(DEFAULT).rules.depth == "complete_p"
    assert flat.choose(DEFAULT).rules.depth == "depth_mup"
    ruined = [flat.best_rates[0].model_copy(update={"lr": 0.1}), *flat.best_rates[1:]]
    assert "no rule fits" in LadderSupport(best_rates=tuple(ruined)).choose(DEFAULT).words


@pytest.mark.parametrize("count", [0, 1])
def test_without_a_ladder_nothing_changes(count: int) -> None:
    alone = LadderSupport(best_rates=ladder(DEFAULT, log_sd=0.1).best_rates[:count])
    other = RateRules(width="sqrt_width", depth="complete_p", horizon="none")
    verdict = alone.choose(other)
    assert (verdict.rules, verdict.decisive) == (other, False)
    assert verdict.words == "no ladder has tested it"
