"""A target given as a number of parameters, tokens or dollars determines its shape by its
ratios."""

from __future__ import annotations

import pytest

from autoresearch.errors import TargetError
from funnel.target.architecture import TargetArchitecture, load_target, parse_target
from tests.support.places import ROOT
from trainer.machine.flops import TrainingFlops

RATIOS = """
name = "own"
width_per_layer = 128
head_dim = 128
kv_group = 4
ffn_ratio = 3.5
activation = "swiglu"
norm = "rmsnorm"
positions = "rotary"
seq_len = 8192
vocab_size = 128256
tie_embeddings = false
"""
MONEY = "budget_usd = {usd}\ngpu_hourly_usd = 2.5\ngpu_tflops = 400\n"


def own(*lines: str) -> TargetArchitecture:
    return parse_target("\n".join((*lines, RATIOS)), "own.toml")


def test_the_published_shape_comes_of_its_ratios_and_its_parameters() -> None:
    """Llama 3 8B has width 4096, 32 layers, 32 heads and d_ff 14,336."""
    target = own("params = 6_980_000_000", 'params_counted = "without_embeddings"')
    assert (target.d_model, target.n_layer, target.n_head, target.n_kv_head) == (4096, 32, 32, 8)
    assert target.d_ff == 14336


@pytest.mark.parametrize("params", [10**9, 3 * 10**9, 13 * 10**9, 70 * 10**9])
def test_the_size_asked_for_is_had_with_the_ratios(params: int) -> None:
    target = own(f"params = {params}")
    assert target.total_params == target.params
    assert target.total_params == pytest.approx(params, rel=0.03)
    assert target.n_head // target.n_kv_head == 4
    assert target.ffn_ratio == pytest.approx(3.5, rel=0.25)


def test_tokens_alone_make_a_twentieth_in_parameters() -> None:
    target = own("token_budget = 160_000_000_000")
    assert target.total_params == pytest.approx(8e9, rel=0.03)
    assert target.tokens == 160_000_000_000


def test_money_is_spent_on_twenty_tokens_a_parameter() -> None:
    """By hand: $100,000 buys 40,000 hours of 400 TFLOP/s, 5.76e22 FLOPs. With 6 N D and D = 20 N
    that is 21.9 B parameters, or fewer once attention over 8,192 tokens and the head are paid
    for."""
    target = own(MONEY.format(usd=100_000))
    per_token = TrainingFlops.of(target, vocab_size=128256, seq_len=8192).per_token
    assert per_token * target.tokens == pytest.approx(5.76e22, rel=1e-6)
    assert target.tokens / target.total_params == pytest.approx(20, rel=0.05)
    assert 15e9 < target.total_params < 21.9e9


def test_money_beside_a_shape_buys_tokens() -> None:
    shipped = (ROOT / "funnel" / "target" / "shipped" / "llama-7b.toml").read_text("utf-8")
    target = parse_target(f"{shipped}\n{MONEY.format(usd=50_000)}", "own.toml")
    plain = load_target("llama-7b")
    per_token = TrainingFlops.of(plain, vocab_size=128256, seq_len=8192).per_token
    assert target.d_model == plain.d_model
    assert target.tokens == pytest.approx(50_000 / 2.5 * 3600 * 4e14 / per_token, rel=1e-9)


@pytest.mark.parametrize(
    ("lines", "left_out", "clause"),
    [
        ((), "", "it has ratios and no budget"),
        (("budget_usd = 5",), "", "gpu_hourly_usd is missing"),
        (("params = 7_000_000_000", "d_model = 4096"), "", "are both there"),
        (("token_budget = 5", MONEY.format(usd=5)), "", "are both there"),
        (("params = -7",), "", "params is -7; give a number above 0"),
        (("params = 7_000_000_000", 'fixed = ["heads"]'), "", "fixed"),
        (("params = 7_000_000_000", "budget = 5"), "", "unknown key"),
        (("params = 7_000_000_000",), "vocab_size", "vocab_size"),
        (("params = 7_000_000_000",), "ffn_ratio", "ffn_ratio"),
    ],
)
def test_a_bad_budget_is_refused_in_one_sentence(
    lines: tuple[str, ...], left_out: str, clause: str
) -> None:
    kept = [line for line in RATIOS.splitlines() if not left_out or not line.startswith(left_out)]
    with pytest.raises(TargetError, match=clause) as caught:
        parse_target("\n".join((*lines, *kept)), "own.toml")
    assert "\n" not in str(caught.value)
