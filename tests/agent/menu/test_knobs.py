import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.menu.files import parse_menu
from agent.menu.rails import Rails
from agent.proposers.base import SearchView
from agent.proposers.contrasts import effects
from agent.proposers.draws import RandomProposer
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.reply_form import proposal_schema
from agent.proposers.sampler import SamplerProposer
from autoresearch.errors import MenuError, SpecError
from autoresearch.values import Scalar
from tests.support.memories import constants, fresh_memory, remember
from trainer.schema import Budget
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

[[constraints]]
expr = "n_layer <= 2"
doc = "three are too slow"
"""
TIED = ("n_layer", "n_head", "n_kv_head", "d_ff", "weight_decay")
TOML += constants("d_model", "lr", *TIED)
MENU = parse_menu(TOML, "tied.toml")
RAILS = Rails(MENU, budget=Budget())


def refused(changes: dict[str, object], rail: str) -> str:
    raw = json.dumps({"changes": changes, "reason": "why not"})
    verdict = RAILS.check(raw, MENU.baseline).verdict
    assert (verdict.allowed, verdict.rail) == (False, rail), verdict
    assert "\n" not in verdict.why
    return verdict.why


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


def test_what_would_not_be_whole_is_refused_and_a_broken_constraint_names_the_knob() -> None:
    assert "n_kv_head" in refused({"d_model": 192}, "cross")
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


BAD_TIES = [
    ('"d_model / 64"', formula)
    for formula in (
        *("4", '"d_modle / 64"', '"batch_size"', '"d_model > 64"', '"d_ff * 2"', '"budget_steps"'),
        *('"d_model / 0"', '"d_model / 100"', '"d_model - 128"'),
    )
]
BAD_TIES += [("n_head =", f"{field} =") for field in ("heads", "batch_size", "lr")]
BAD_TIES += [('weight_decay = "100 * lr"\n', ""), ("[tied]", "[ties]")]
BAD_TIES += [("[tied]", '[tied]\nactivation = "lr"')]


def refuses(text: str) -> None:
    with pytest.raises(MenuError) as caught:
        parse_menu(text, "tied.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("old", "new"), BAD_TIES)
def test_a_bad_tie_is_refused_in_one_sentence(old: str, new: str) -> None:
    assert old in TOML
    refuses(TOML.replace(old, new, 1))
    if "activation" in new:
        refuses(TOML.replace('activation = "gelu"\n', "").replace(old, new))


def test_a_model_is_told_what_follows_and_offered_only_knobs() -> None:
    schema = proposal_schema(fresh_memory(MENU))
    offered = schema["properties"]["changes"]["items"]["anyOf"]
    assert [each["properties"]["knob"]["enum"] for each in offered] == [["d_model"], ["lr"]]
    view = SearchView(MENU, MENU.baseline, Evidence(), iter=1, seed=0, max_changes=2)
    text = Prompter(Budget()).prompt(view).messages[0].content
    assert "cannot be set: n_layer = (d_model + 64) // 128, n_head = d_model / 64" in text


@given(width=st.sampled_from([128, 256]), lr=st.floats(1e-4, 1e-1), seed=st.integers())
def test_no_order_of_changes_leaves_the_shape(width: int, lr: float, seed: int) -> None:
    changes = [("d_model", width), ("lr", lr)]
    Random(seed).shuffle(changes)
    config = MENU.baseline
    for name, value in changes:
        config = MENU.apply(config, {name: value})
    assert config == MENU.apply(MENU.baseline, {"d_model": width, "lr": lr})
    shape = (config.n_head, config.kv_heads, config.d_ff)
    assert shape == (width // 64, width // 128, width * 7 // 2)
    assert config.weight_decay == 100 * lr


RATIOS = """
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

"""
RATIOS += constants("d_model", "activation", "n_head", "n_layer", "d_ff")


def test_what_a_config_was_made_of_is_read_back() -> None:
    menu = parse_menu(RATIOS, "ratios.toml")
    changes: dict[str, Scalar] = {"d_model": 256, "head_dim": 64, "ffn_ratio": 4.0}
    changes["activation"] = "swiglu"
    config = menu.apply(menu.baseline, changes)
    assert (config.n_head, config.d_ff, config.n_layer) == (4, 1024, 1)
    assert menu.knob_values(config) == changes
    # 2.7 x 128 is 345.6: the integer 345 is read back as the factor it was made from.
    assert menu.baseline.d_ff == 345
    assert menu.knob_values(menu.baseline)["ffn_ratio"] == 2.7


def test_ratios_stay_when_another_knob_is_turned() -> None:
    menu = parse_menu(RATIOS, "ratios.toml")
    wide = menu.apply(menu.baseline, {"head_dim": 16})
    turned = menu.apply(wide, {"d_model": 256})
    assert (turned.n_head, turned.d_ff) == (16, 691)
    assert menu.apply(turned, {"d_model": 128}) == wide


def test_a_ratio_that_cannot_be_had_is_refused_with_the_one_that_would_be() -> None:
    menu = parse_menu(RATIOS, "ratios.toml")
    # 96 // 64 is one head, which gives a width of 96.
    wider = parse_menu(RATIOS.replace("[16, 32, 64]", "[16, 32, 64, 90]"), "x")
    with pytest.raises(SpecError, match="head_dim"):
        wider.apply(menu.baseline, {"d_model": 96, "head_dim": 64})
    reply = json.dumps({"changes": {"head_dim": 48}, "reason": "no choice"})
    assert "48" in Rails(menu, budget=Budget()).check(reply, menu.baseline).verdict.why


def test_restated_ratios_are_no_change() -> None:
    menu = parse_menu(RATIOS, "ratios.toml")
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
    ],
)
def test_a_bad_reading_is_refused_in_one_sentence(old: str, new: str) -> None:
    assert old in RATIOS
    refuses(RATIOS.replace(old, new, 1))


@pytest.mark.parametrize("kind", [RandomProposer, SamplerProposer])
def test_proposers_turn_ratios_as_any_knob(
    kind: type[RandomProposer] | type[SamplerProposer],
) -> None:
    menu = parse_menu(RATIOS, "ratios.toml")
    rails = Rails(menu, budget=Budget())
    rng = Random(3)
    view = fresh_memory(menu)
    turned: set[str] = set()
    for _ in range(20):
        offer = kind(rails).propose(view)
        changes = offer.reply.changes
        turned |= changes.keys()
        assert rails.check(offer.reply, view.reference).verdict.allowed
        view = remember(view, changes, 3.8 + rng.random() / 10)
    assert {"head_dim", "ffn_ratio"} <= turned
    effects_of = effects(menu, view.evidence.configs.values(), None)
    assert effects_of.keys() <= menu.knobs.keys()
    assert {"head_dim", "ffn_ratio"} & effects_of.keys()
