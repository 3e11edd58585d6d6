"""Test the transfer rules' laws against the papers and the published code."""

import math

import pytest

from funnel.transfer.rules import (
    LENGTH_EXPONENTS,
    batches,
    best_timescale,
    carried_timescale,
    critical_batch,
    step_law_lr,
    timescale,
)
from tests.support.published_runs import STEP_LAW_GRID


def batch(rule: str, tokens: float) -> float:
    return batches(tokens, kept=4096)[rule]


def test_delphi_is_the_published_code() -> None:
    """marin-community/marin, completed_adamh.py: lr0 × sqrt(B / B0) × (T0 / T)^0.3."""
    assert LENGTH_EXPONENTS["delphi"] == -0.3
    assert 10 ** LENGTH_EXPONENTS["microsoft"] == pytest.approx(0.479, abs=1e-3)
    assert 10 ** LENGTH_EXPONENTS["complete_d"] == pytest.approx(1 / math.sqrt(10))


def test_step_laws_length_is_its_own_with_its_own_batch() -> None:
    grown = batch("step_law", 1e11) / batch("step_law", 1e10)
    together = 10 ** LENGTH_EXPONENTS["step_law"] * math.sqrt(grown)
    assert together == pytest.approx(step_law_lr(1e9, 1e11) / step_law_lr(1e9, 1e10))


def test_step_law_is_the_mean_of_its_published_fits() -> None:
    """The rule is the mean of the 1,004 bootstrap fits in step-law/steplaw: exp(0.5863) N^-0.7129
    D^0.3075, and exp(-0.5435) D^0.5709 tokens. Its README's example is 7 B parameters on 1.4 T
    tokens."""
    n, d = 7e9, 1.4e12
    assert step_law_lr(n, d) == pytest.approx(
        math.exp(0.58631) * n**-0.71292 * d**0.30749, rel=0.02
    )
    assert batch("step_law", d) == pytest.approx(math.exp(-0.54354) * d**0.57094, rel=0.01)
    for cell in STEP_LAW_GRID:
        assert 0.5 <= step_law_lr(cell.params, cell.tokens) / cell.lr <= 2
        assert 0.5 <= batch("step_law", cell.tokens) / cell.tokens_per_step <= 2


def test_power_lines_batch() -> None:
    """The fit gives 0.721 M tokens for 40 B, as others read it. The exponents of the optimal and
    the critical batch are the published ones."""
    assert batch("power_lines", 40e9) == pytest.approx(0.721e6, rel=0.005)
    assert batch("power_lines", 2e10) / batch("power_lines", 1e10) == pytest.approx(2**0.383)
    assert critical_batch(2e10) / critical_batch(1e10) == pytest.approx(2**0.462)
    assert critical_batch(1e10) > batch("power_lines", 1e10)


def test_the_time_scale_of_adamw() -> None:
    """Both papers define tau = B / (lr × weight_decay × D). Power Lines' optimum at 20 tokens per
    parameter is 1.084 × 20^-0.527. One that the small run did not show is not carried."""
    lr, decay, batch, tokens = 3e-4, 0.1, 2**22, 2e12
    assert timescale(lr, decay, tokens / batch) == pytest.approx(batch / (lr * decay * tokens))
    assert timescale(lr, 0.0, 1000) == math.inf
    assert best_timescale(20) == pytest.approx(0.2236, abs=1e-4)
    shown = carried_timescale(base=0.3, tpp_base=20, tpp=80)
    assert shown == pytest.approx(0.3 * 4**-0.527)
    for base in (1.5, math.inf):
        assert carried_timescale(base=base, tpp_base=2, tpp=80) == best_timescale(80)
