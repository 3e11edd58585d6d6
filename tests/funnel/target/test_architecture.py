"""Shipped target architectures have their published sizes, and invalid ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import TargetError
from funnel.target.architecture import load_target, parse_target, shipped_targets
from funnel.target.shape import ParameterCount
from tests.support.configs import config
from tests.support.places import ROOT
from trainer.memory.estimate import parameter_count
from trainer.spec import Config

TOML = (ROOT / "funnel" / "target" / "shipped" / "llama-7b.toml").read_text("utf-8")


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
def test_the_shipped_shapes_have_the_published_parameters(
    name: str, total: int, blocks: int
) -> None:
    target = load_target(name)
    assert (target.total_params, target.parameter_count.blocks) == (total, blocks)
    assert target.tokens == 20 * total


@pytest.mark.parametrize("params", [6_790_000_000, 7_190_000_000])
def test_three_percent_either_way_are_allowed(params: int) -> None:
    toml = TOML.replace("7_000_000_000", str(params))
    assert parse_target(f"{toml}\ntoken_budget = 2_000_000\n", "own.toml").tokens == 2_000_000


@pytest.mark.parametrize(
    ("old", "new", "clause"),
    [
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


def test_odd_heads_cannot_rotate() -> None:
    toml = TOML.replace("head_dim = 128", "head_dim = 1").replace("n_head = 32", "n_head = 4096", 1)
    with pytest.raises(TargetError, match="head_dim"):
        parse_target(toml, "own.toml")


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
