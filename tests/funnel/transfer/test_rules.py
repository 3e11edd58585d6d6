"""Test the transfer rules' laws, and how far a campaign's evidence supports them."""

import itertools
import math

import numpy as np
import pytest

from funnel.transfer.rates import (
    DEPTH_RULES,
    EXPONENTS,
    WIDTH_RULES,
    Rule,
    Seen,
    batch_factor,
    critical_batch,
    depth_factor,
    horizon_factor,
    power_lines_batch,
    step_law_batch,
    step_law_lr,
    tokens_a_step,
    width_factor,
)
from funnel.transfer.rules import (
    BestRate,
    LadderSupport,
    RateRules,
    best_timescale,
    carried_timescale,
    timescale,
    warmup_steps,
)
from tests.support.published_runs import STEP_LAW_GRID


def test_maximal_update_is_table_8() -> None:
    """Adam's rate of a hidden matrix is proportional to 1 / fan_in."""
    factors = [width_factor("mup", d_base=128, d_model=d, size_ratio=1) for d in (128, 256, 8192)]
    assert factors == [1, 1 / 2, 1 / 64]


@pytest.mark.parametrize("depth_multiplier", [1, 2, 16, 64])
def test_depth_is_the_published_code(depth_multiplier: int) -> None:
    """EleutherAI/nanoGPT-mup, branch completep: ``depth_lr_scaling = m^(alpha - 1)`` with alpha 1
    or 1/2."""
    layers = 2 * depth_multiplier
    for rule, alpha in (("complete_p", 1.0), ("depth_mup", 0.5)):
        assert depth_factor(rule, base=2, n_layer=layers) == pytest.approx(  # type: ignore[arg-type]
            depth_multiplier ** (alpha - 1)
        )


def test_delphi_is_the_published_code() -> None:
    """marin-community/marin, completed_adamh.py: lr0 × sqrt(B / B0) × (T0 / T)^0.3."""
    tokens, batch = 6e11, 4096
    published = 0.0063 * math.sqrt(batch / 64) * (2.5e9 / tokens) ** 0.3
    ours = 0.0063 * batch_factor(batch, 64) * horizon_factor("delphi", tokens_ratio=tokens / 2.5e9)
    assert ours == pytest.approx(published)
    factors = {rule: horizon_factor(rule, tokens_ratio=10) for rule in EXPONENTS}
    assert factors["microsoft"] == pytest.approx(0.479, abs=1e-3)
    assert factors["complete_d"] == pytest.approx(1 / math.sqrt(10))
    assert factors["none"] == 1


def test_step_laws_length_is_its_own_with_its_own_batch() -> None:
    grown = step_law_batch(1e11) / step_law_batch(1e10)
    together = horizon_factor("step_law", tokens_ratio=10) * batch_factor(grown, 1)
    assert together == pytest.approx(step_law_lr(1e9, 1e11) / step_law_lr(1e9, 1e10))


def test_step_law_is_the_mean_of_its_published_fits() -> None:
    """The rule is the mean of the 1,004 bootstrap fits in step-law/steplaw: exp(0.5863) N^-0.7129
    D^0.3075, and exp(-0.5435) D^0.5709 tokens. Its README's example is 7 B parameters on 1.4 T
    tokens."""
    n, d = 7e9, 1.4e12
    assert step_law_lr(n, d) == pytest.approx(
        math.exp(0.58631) * n**-0.71292 * d**0.30749, rel=0.02
    )
    assert step_law_batch(d) == pytest.approx(math.exp(-0.54354) * d**0.57094, rel=0.01)
    assert step_law_batch(161e9) == pytest.approx(1.45e6, rel=0.01)


def test_step_law_is_within_twice_its_grids_optima() -> None:
    for cell in STEP_LAW_GRID:
        assert 0.5 <= step_law_lr(cell.params, cell.tokens) / cell.lr <= 2
        assert 0.5 <= step_law_batch(cell.tokens) / cell.tokens_per_step <= 2


def test_power_lines_batch() -> None:
    """The fit gives 0.721 M tokens for 40 B, as others read it. The exponents of the optimal and
    the critical batch are the published ones."""
    assert power_lines_batch(40e9) == pytest.approx(0.721e6, rel=0.005)
    assert power_lines_batch(2e10) / power_lines_batch(1e10) == pytest.approx(2**0.383)
    assert critical_batch(2e10) / critical_batch(1e10) == pytest.approx(2**0.462)
    assert critical_batch(1e10) > power_lines_batch(1e10)
    assert tokens_a_step("kept", kept=4096, tokens=10**12) == 4096


def test_the_time_scale_of_adamw() -> None:
    """Both papers define tau = B / (lr × weight_decay × D). Power Lines' optimum at 20 tokens per
    parameter is 1.084 × 20^-0.527."""
    lr, decay, batch, tokens = 3e-4, 0.1, 2**22, 2e12
    assert timescale(lr, decay, tokens / batch) == pytest.approx(batch / (lr * decay * tokens))
    assert timescale(lr, 0.0, 1000) == math.inf
    assert best_timescale(20) == pytest.approx(0.2236, abs=1e-4)


def test_a_time_scale_that_was_felt_is_carried_and_one_that_was_not_is_not() -> None:
    felt = carried_timescale("power_lines", base=0.3, tpp_base=20, tpp=80)
    assert felt == pytest.approx(0.3 * 4**-0.527)
    assert carried_timescale("timescale", base=0.3, tpp_base=20, tpp=80) == 0.3
    for base in (1.5, math.inf):
        unfelt = carried_timescale("power_lines", base=base, tpp_base=2, tpp=80)
        assert unfelt == best_timescale(80)


def test_warm_up() -> None:
    """Ma and Yarats: 2 / (1 - beta2), which is 2,000 steps at PyTorch's beta2."""
    assert warmup_steps("untuned", fraction=0.1, steps=10**6, beta2=0.999) == 2000
    assert warmup_steps("fraction", fraction=0.005, steps=110_764, beta2=0.95) == 554
    assert warmup_steps("untuned", fraction=0.1, steps=30, beta2=0.999) == 29


def test_a_rule_says_where_it_was_not_seen() -> None:
    rule = Rule(name="law", paper="", formula="", seen=(Seen(what="tokens", low=10, high=20),))
    assert list(rule.beyond(tokens=15, layers=3)) == []
    assert len(list(rule.beyond(tokens=21.0))) == 1


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
