"""Each rule reproduces the figures of its own paper, or of its authors' published code."""

from __future__ import annotations

import math

import pytest

from funnel.transfer.rates import (
    EXPONENTS,
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
from funnel.transfer.rules import best_timescale, carried_timescale, timescale, warmup_steps
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
