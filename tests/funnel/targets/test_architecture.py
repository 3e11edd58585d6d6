"""Test target architectures: their files, sizes and budgets."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import AutoresearchError, TargetError
from funnel.targets.architecture import (
    TargetArchitecture,
    load_target,
    parse_target,
    shipped_targets,
)
from funnel.targets.shape import ParameterCount, parse_size, size_text
from tests.support.configs import config
from tests.support.places import ROOT
from trainer.machine.flops import TrainingFlops
from trainer.memory.estimate import parameter_count
from trainer.schema import Config

TOML = (ROOT / "funnel" / "targets" / "shipped" / "llama-7b.toml").read_text("utf-8")


def test_four_targets_are_shipped_under_their_own_names() -> None:
    assert shipped_targets() == ["gpt-1b", "llama-1b", "llama-70b", "llama-7b"]
    assert [load_target(name).name for name in shipped_targets()] == shipped_targets()


@pytest.mark.parametrize(
    ("name", "total", "blocks"),
    [
        # Meta's Llama 3.2 1B, Llama 3 8B and Llama 3 70B, from their checkpoints.
        ("llama-1b", 1_235_814_400, 973_146_112),
        # GPT-Neo 1.3B's 1,315,575,808 less its biases, which no backend here supports.
        ("gpt-1b", 1_315_180_544, 1_208_059_904),
        ("llama-7b", 8_030_261_248, 6_979_588_096),
        ("llama-70b", 70_553_706_496, 68_452_360_192),
    ],
)
def test_shipped_shapes_have_the_published_parameters(name: str, total: int, blocks: int) -> None:
    target = load_target(name)
    assert (target.total_params, target.parameter_count.blocks) == (total, blocks)
    assert target.tokens == 20 * total


def test_three_percent_either_way_are_allowed() -> None:
    for params in ("6_790_000_000", "7_190_000_000"):
        toml = TOML.replace("7_000_000_000", params)
        assert parse_target(f"{toml}\ntoken_budget = 2_000_000\n", "own").tokens == 2_000_000


@pytest.mark.parametrize(
    ("old", "new", "clause"),
    [
        (
            "n_head = 32\nn_kv_head = 8\nhead_dim = 128",
            "n_head = 4096\nn_kv_head = 8\nhead_dim = 1",
            "even head_dim",
        ),
        ("7_000_000_000", "6_770_000_000", "3% is allowed"),
        ("7_000_000_000", "7_200_000_000", "3% is allowed"),
        ("n_kv_head = 8", "n_kv_head = 32", "7,784,894,464"),
        ("seq_len", "seqlen", 'unknown key "seqlen"'),
        ("head_dim = 128", "head_dim = 64", "64 × n_head 32 is 2048, not d_model 4096"),
        ("n_kv_head = 8", "n_kv_head = 5", "not a multiple of n_kv_head 5"),
        ("ffn_ratio = 3.5", "ffn_ratio = 3.3", "13516.8, not a whole d_ff"),
        ("ffn_ratio = 3.5", "ffn_ratio = 1e305", "ffn_ratio"),
        ("vocab_size = 128256", f"vocab_size = {'9' * 400}", "vocab_size"),
        ("ffn_ratio = 3.5\n", "", "ffn_ratio: Field required"),
        ("n_layer = 32", "n_layer = 32.0", "n_layer"),
        ('"swiglu"', '"relu"', "activation"),
        ('name = "llama-7b"', 'name = "a b"', "name"),
        ("head_dim = 128", "head_dim = ", "TOML"),
    ],
)
def test_a_bad_target_is_refused_in_one_sentence(old: str, new: str, clause: str) -> None:
    assert old in TOML
    with pytest.raises(TargetError, match=r"target own\.toml ") as caught:
        parse_target(TOML.replace(old, new, 1), "own.toml")
    assert clause in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_target_is_named_with_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(TargetError):
        load_target("lama-7b")
    own = tmp_path / "own.toml"
    own.write_text(TOML, encoding="utf-8")
    assert load_target(str(own)) == load_target("llama-7b")


SHAPES = st.builds(
    config,
    n_layer=st.integers(1, 4),
    n_head=st.just(8),
    n_kv_head=st.sampled_from([None, 1, 2, 4, 8]),
    d_model=st.sampled_from([64, 128]),
    d_ff=st.integers(8, 300),
    activation=st.sampled_from(["gelu", "swiglu"]),
    positions=st.sampled_from(["learned", "rotary"]),
    tie_embeddings=st.booleans(),
    seq_len=st.integers(8, 64),
)


@given(shape=SHAPES, vocab_size=st.integers(2, 5000))
def test_parameters_are_those_the_trainer_counts(shape: Config, vocab_size: int) -> None:
    assert ParameterCount.of(shape, vocab_size).total == parameter_count(shape, vocab_size)


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
    shipped = (ROOT / "funnel" / "targets" / "shipped" / "llama-7b.toml").read_text("utf-8")
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
def test_a_bad_budget_is_refused(lines: tuple[str, ...], left_out: str, clause: str) -> None:
    kept = [line for line in RATIOS.splitlines() if not left_out or not line.startswith(left_out)]
    with pytest.raises(TargetError, match=clause) as caught:
        parse_target("\n".join((*lines, *kept)), "own.toml")
    assert "\n" not in str(caught.value)


SIZES = {
    "200M": 200_000_000, "1.5b": 1_500_000_000, " 300k ": 300_000, "8,030,261,248": 8_030_261_248,
    "7_000": 7000,
}  # fmt: skip
NO_SIZES = ("", "200MM", "-1M", "0.1", "1e6", "nan", "٣M", "M")


def test_sizes_are_read_as_people_write_them() -> None:
    assert {text: parse_size(text) for text in SIZES} == SIZES
    for text in NO_SIZES:
        with pytest.raises(AutoresearchError):
            parse_size(text)


@given(st.integers(1, 10**15))
def test_what_is_written_is_read_back_to_three_digits(size: int) -> None:
    assert (size_text(999_600), size_text(212_345_678)) == ("1M", "212M")
    assert parse_size(size_text(size)) == pytest.approx(size, rel=0.005)
