"""Check that no proposer can separate a tied field from the knobs it follows."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.menu.files import parse_menu
from agent.menu.rails import Rails
from agent.proposers.base import Memory
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.reply_form import proposal_schema
from autoresearch.errors import MenuError, SpecError
from tests.support.memories import fresh_memory
from trainer.spec import Budget
from trajectory.evidence import Evidence

TOML = """
name = "tied"

[knobs.d_model]
type = "int"
choices = [128, 192, 256, 320]
default = 128

[knobs.lr]
type = "float"
low = 1e-4
high = 1e-1
scale = "log"
default = 1e-3

[tied]
n_layer = "(d_model + 64) // 128"
n_head = "d_model / 64"
n_kv_head = "d_model / 128"
d_ff = "d_model * 7 / 2"
weight_decay = "100 * lr"

[constants]
activation = "swiglu"
norm = "rmsnorm"
positions = "rotary"
tie_embeddings = false
lr_warmup = 1
lr_min_ratio = 0.1
grad_clip = 1.0
beta1 = 0.9
beta2 = 0.95
batch_size = 2
seq_len = 16
precision = "fp32"

[[constraints]]
expr = "n_layer <= 2"
doc = "three are too slow"
"""
MENU = parse_menu(TOML, "tied.toml")
RAILS = Rails(MENU, budget=Budget())


def refused(changes: dict[str, object], rail: str) -> str:
    raw = json.dumps({"changes": changes, "reason": "why not"})
    verdict = RAILS.check(raw, MENU.baseline).verdict
    assert (verdict.allowed, verdict.rail) == (False, rail), verdict
    assert "\n" not in verdict.why
    return verdict.why


def test_the_baseline_is_computed() -> None:
    baseline = MENU.baseline
    assert (baseline.n_layer, baseline.n_head, baseline.kv_heads) == (1, 2, 1)
    assert (baseline.d_ff, baseline.weight_decay) == (448, 0.1)
    assert isinstance(baseline.d_ff, int)


def test_one_knob_moves_the_whole_shape_and_nothing_else() -> None:
    config = MENU.apply(MENU.baseline, {"d_model": 256})
    expected = {"d_model": 256, "n_layer": 2, "n_head": 4, "n_kv_head": 2, "d_ff": 896}
    assert config == MENU.baseline.model_copy(update=expected)
    assert MENU.apply(config, {"d_model": 128}) == MENU.baseline
    assert MENU.knob_values(config) == {"d_model": 256, "lr": 1e-3}


@pytest.mark.parametrize("name", list(MENU.tied))
def test_the_menu_rail_refuses_a_tied_field_and_names_what_it_follows(name: str) -> None:
    why = refused({name: getattr(MENU.baseline, name)}, "menu")
    assert ("lr" if name == "weight_decay" else "d_model") in why
    assert name in why


def test_what_would_not_be_whole_is_refused_as_a_combination() -> None:
    assert "n_kv_head" in refused({"d_model": 192}, "cross")


def test_a_broken_constraint_names_the_knob_to_turn() -> None:
    whole = parse_menu(TOML.replace("d_model / 128", "d_model / 64"), "x")
    config = whole.apply(whole.baseline, {"d_model": 320})
    assert "change d_model" in (whole.why_broken(config, Budget()) or "")


def test_what_a_formula_makes_untrainable_is_blamed_on_it() -> None:
    toml = TOML.replace('"d_model / 64"', '"d_model // 50"').replace(
        "d_model / 128", "d_model // 128"
    )
    odd = parse_menu(toml, "odd.toml")
    with pytest.raises(SpecError, match="n_head"):
        odd.apply(odd.baseline, {"d_model": 320})


def test_a_formula_may_use_the_ties_before_it_and_follows_their_knobs() -> None:
    menu = parse_menu(TOML.replace('"d_model / 64"', '"n_layer * 2"'), "chain.toml")
    assert menu.baseline.n_head == 2 * menu.baseline.n_layer
    assert menu.ties["n_head"].knobs == ("d_model",)
    assert menu.apply(menu.baseline, {"d_model": 256}).n_head == 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"d_model / 64"', "4"),
        ('"d_model / 64"', '"d_modle / 64"'),
        ('"d_model / 64"', '"batch_size"'),
        ('"d_model / 64"', '"d_model > 64"'),
        ('"d_model / 64"', '"d_ff * 2"'),
        ('"d_model / 64"', '"budget_steps"'),
        ('"d_model / 64"', '"d_model / 0"'),
        ('"d_model / 64"', '"d_model / 100"'),
        ('"d_model / 64"', '"d_model - 128"'),
        ("n_head =", "heads ="),
        ("n_head =", "batch_size ="),
        ("n_head =", "lr ="),
        ('weight_decay = "100 * lr"\n', ""),
        ("[tied]", "[ties]"),
    ],
)
def test_a_bad_tie_is_refused_in_one_sentence(old: str, new: str) -> None:
    assert old in TOML
    with pytest.raises(MenuError) as caught:
        parse_menu(TOML.replace(old, new, 1), "tied.toml")
    assert "\n" not in str(caught.value)


def test_only_numbers_follow() -> None:
    toml = TOML.replace('activation = "swiglu"\n', "")
    with pytest.raises(MenuError):
        parse_menu(toml.replace("[tied]", '[tied]\nactivation = "lr"'), "tied.toml")


def test_a_model_is_told_what_follows_and_offered_only_knobs() -> None:
    schema = proposal_schema(fresh_memory(MENU))
    offered = schema["properties"]["changes"]["items"]["anyOf"]
    assert [each["properties"]["knob"]["enum"] for each in offered] == [["d_model"], ["lr"]]
    memory = Memory(MENU, MENU.baseline, Evidence(), iter=1, seed=0, max_changes=2)
    text = Prompter(Budget()).prompt(memory).messages[0].content
    assert "cannot be set: n_layer = (d_model + 64) // 128, n_head = d_model / 64" in text


@given(width=st.sampled_from([128, 256]), lr=st.floats(1e-4, 1e-1), seed=st.integers())
def test_no_order_of_changes_leaves_the_shape(width: int, lr: float, seed: int) -> None:
    changes = [("d_model", width), ("lr", lr)]
    Random(seed).shuffle(changes)
    config = MENU.baseline
    for name, value in changes:
        config = MENU.apply(config, {name: value})
    assert config == MENU.apply(MENU.baseline, {"d_model": width, "lr": lr})
    assert (config.n_head, config.kv_heads, config.d_ff) == (
        width // 64,
        width // 128,
        width * 7 // 2,
    )
    assert config.weight_decay == 100 * lr
