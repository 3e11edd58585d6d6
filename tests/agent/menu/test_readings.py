"""Test knobs that are not fields: they are read back from a config, or the menu is refused."""

from __future__ import annotations

import json
from random import Random

import pytest

from agent.menu.files import parse_menu
from agent.menu.rails import Rails
from agent.proposers.contrasts import effects
from agent.proposers.draws import RandomProposer
from agent.proposers.sampler import SamplerProposer
from autoresearch.errors import MenuError, SpecError
from autoresearch.values import Scalar
from tests.support.memories import fresh_memory, remember
from trainer.spec import Budget

TOML = """
name = "ratios"

[knobs.d_model]
type = "int"
choices = [96, 128, 256]
default = 128

[knobs.head_dim]
type = "int"
choices = [16, 32, 64]
default = 32
reads = "d_model / n_head"

[knobs.ffn_ratio]
type = "choice"
choices = [2.0, 2.7, 4.0]
default = 2.7
reads = "d_ff / d_model"

[knobs.activation]
type = "choice"
choices = ["gelu", "swiglu"]
default = "gelu"

[tied]
n_head = "d_model // head_dim"
n_layer = "2 if activation == 'gelu' else 1"
d_ff = "ffn_ratio * d_model // 1"

[constants]
norm = "rmsnorm"
positions = "rotary"
tie_embeddings = false
lr = 1e-3
lr_warmup = 1
lr_min_ratio = 0.1
grad_clip = 1.0
weight_decay = 0.0
beta1 = 0.9
beta2 = 0.95
batch_size = 2
seq_len = 16
precision = "fp32"
"""


def test_what_a_config_was_made_of_is_read_back() -> None:
    menu = parse_menu(TOML, "ratios.toml")
    changes: dict[str, Scalar] = {
        "d_model": 256,
        "head_dim": 64,
        "ffn_ratio": 4.0,
        "activation": "swiglu",
    }
    config = menu.apply(menu.baseline, changes)
    assert (config.n_head, config.d_ff, config.n_layer) == (4, 1024, 1)
    assert menu.knob_values(config) == changes
    # 2.7 x 128 is 345.6: the integer 345 is read back as the factor it was made from.
    assert menu.baseline.d_ff == 345
    assert menu.knob_values(menu.baseline)["ffn_ratio"] == 2.7


def test_ratios_stay_when_another_knob_is_turned() -> None:
    menu = parse_menu(TOML, "ratios.toml")
    wide = menu.apply(menu.baseline, {"head_dim": 16})
    turned = menu.apply(wide, {"d_model": 256})
    assert (turned.n_head, turned.d_ff) == (16, 691)
    assert menu.apply(turned, {"d_model": 128}) == wide


def test_a_ratio_that_cannot_be_had_is_refused_with_the_one_that_would_be() -> None:
    menu = parse_menu(TOML, "ratios.toml")
    # 96 // 64 is one head, which gives a width of 96.
    wider = parse_menu(TOML.replace("[16, 32, 64]", "[16, 32, 64, 90]"), "x")
    with pytest.raises(SpecError, match="head_dim"):
        wider.apply(menu.baseline, {"d_model": 96, "head_dim": 64})
    reply = json.dumps({"changes": {"head_dim": 48}, "reason": "no choice"})
    assert "48" in Rails(menu, budget=Budget()).check(reply, menu.baseline).verdict.why


def test_restated_ratios_are_no_change() -> None:
    menu = parse_menu(TOML, "ratios.toml")
    reply = json.dumps({"changes": {"head_dim": 32, "ffn_ratio": 4.0}, "reason": "one of two"})
    checked = Rails(menu, budget=Budget()).check(reply, menu.baseline)
    assert checked.verdict.allowed
    assert checked.proposal is not None
    assert checked.proposal.restated == {"head_dim": 32}
    assert checked.proposal.changes == {"ffn_ratio": 4.0}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('reads = "d_model / n_head"', 'reads = "d_model / heads"'),
        ('reads = "d_model / n_head"', 'reads = "activation"'),
        ('reads = "d_model / n_head"', 'reads = "n_head"'),
        ('reads = "d_model / n_head"', ""),
        ('reads = "d_ff / d_model"', "reads = 4"),
        ("choices = [2.0, 2.7, 4.0]", "choices = [0.0, 2.7]"),
        ("[knobs.head_dim]", "[knobs.n_kv_head]"),
        ("2 if activation == 'gelu' else 1", "2 if d_model else 1"),
        ("2 if activation == 'gelu' else 1", "2 if activation == 'gelu' else 'x'"),
    ],
)
def test_a_bad_reading_is_refused_in_one_sentence(old: str, new: str) -> None:
    assert old in TOML
    with pytest.raises(MenuError) as caught:
        parse_menu(TOML.replace(old, new, 1), "ratios.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [RandomProposer, SamplerProposer])
def test_proposers_turn_ratios_as_any_knob(
    kind: type[RandomProposer] | type[SamplerProposer],
) -> None:
    menu = parse_menu(TOML, "ratios.toml")
    rails = Rails(menu, budget=Budget())
    rng = Random(3)
    memory = fresh_memory(menu)
    turned: set[str] = set()
    for _ in range(20):
        offer = kind(rails).propose(memory)
        changes = json.loads(offer.raw)["changes"]
        turned |= changes.keys()
        assert rails.check(offer.raw, memory.reference).verdict.allowed
        memory = remember(memory, changes, 3.8 + rng.random() / 10)
    assert {"head_dim", "ffn_ratio"} <= turned
    effects_of = effects(menu, memory.evidence.configs.values(), None)
    assert effects_of.keys() <= menu.knobs.keys()
    assert {"head_dim", "ffn_ratio"} & effects_of.keys()
