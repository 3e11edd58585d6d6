"""The carried shape is the target's own with the search's changes, at the target's size."""

from functools import cache
from itertools import product
from typing import Any

import pytest

from agent.menu.files import load_menu, parse_menu
from agent.menu.proxy_menu import ProxyMenu
from autoresearch.errors import SpecError, TargetError
from autoresearch.values import Scalar
from funnel.targets.architecture import TargetArchitecture, load_target
from funnel.targets.carried_shape import ASPECT_LIMIT, CarriedShape, carry_shape
from funnel.targets.proxies import CPU, GPU, Scale
from funnel.targets.ratio_menu import ratio_menu_text
from funnel.targets.ratios import RatioName
from tests.funnel.targets.test_ratio_menu import family_of
from trainer.schema import Config

TARGETS = ("llama-7b", "llama-70b", "gpt-1b")
SIZE_TOLERANCE = 0.02
"""Tolerance of the blocks' parameters, relative to the target's: whole layers, d_ff in steps of
128."""


@cache
def menu_of(name: str, scale: Scale) -> ProxyMenu:
    return parse_menu(ratio_menu_text(family_of(load_target(name), scale)), "generated")


def won(name: str, scale: Scale = GPU, **changes: Scalar) -> tuple[Config, Config]:
    """Return a winner with these changes to the menu's baseline, and the baseline."""
    menu = menu_of(name, scale)
    return menu.apply(menu.baseline, changes), menu.baseline


def carried(name: str, scale: Scale = GPU, **changes: Scalar) -> CarriedShape:
    winner, baseline = won(name, scale, **changes)
    return carry(winner, load_target(name), baseline)


def carry(
    winner: Config, target: TargetArchitecture, baseline: Config, *left: RatioName
) -> CarriedShape:
    return carry_shape(winner, target, baseline=baseline, vocab_size=1024, left=left)


def numbers(target: TargetArchitecture) -> tuple[int, ...]:
    return (target.d_model, target.n_layer, target.n_head, target.n_kv_head, target.d_ff)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("scale", [GPU, CPU])
def test_the_baseline_carries_the_target_itself(name: str, scale: Scale) -> None:
    target = load_target(name)
    baseline = menu_of(name, scale).baseline
    assert carry(baseline, target, baseline) == CarriedShape(target=target, ratios=())
    # Knobs that are not ratios leave the shape unchanged.
    other = baseline.model_copy(update={"lr": 0.5, "weight_decay": 0.3, "schedule": "wsd"})
    assert carry(other, target, baseline).target is target


def test_shared_heads_and_activation_are_paid_by_d_ff_as_in_the_proxy() -> None:
    """By hand: with full heads a block of the 7 B has 4096 × (4 × 4096 + 3 F) parameters, the
    target's 2.5 and 3 × 14336. Two matrices of 3 / 2 the width weigh as much as three."""
    assert numbers(carried("llama-7b", kv_group=1).target) == (4096, 32, 32, 32, 12288)
    relu2 = carried("llama-7b", activation="relu2").target
    assert numbers(relu2) == (4096, 32, 32, 8, 21504)
    assert relu2.activation == "relu2"
    assert carried("llama-70b", kv_group=4).target.n_kv_head == 16


def test_narrower_heads_are_twice_as_many_also_where_a_cpu_had_narrower_ones_from_the_start() -> (
    None
):
    assert carried("llama-7b", head_dim=64).target.head_dim == 64
    small = carried("llama-7b", CPU, head_dim=8)
    assert (small.target.head_dim, small.target.n_head, small.target.n_kv_head) == (64, 64, 16)
    (told,) = small.ratios
    assert (told.baseline, told.winner, told.before, told.after) == (16, 8, 128, 64)


def test_depth_and_ratio_grow_as_in_the_proxy() -> None:
    shape = carried("gpt-1b", ffn_ratio=2.25).target
    winner, baseline = won("gpt-1b", ffn_ratio=2.25)
    assert (winner.n_layer, baseline.n_layer) == (17, 12)
    assert shape.n_layer == 34
    assert shape.d_model == 2048
    assert shape.ffn_ratio == pytest.approx(winner.d_ff / winner.d_model, rel=0.02)


def test_width_to_depth_is_held_within_a_factor() -> None:
    deep, base = won("llama-7b", CPU, d_model=128)
    factor = (deep.d_model / deep.n_layer) / (base.d_model / base.n_layer)
    assert factor < 1 / ASPECT_LIMIT
    shape = carry(deep, load_target("llama-7b"), base)
    aspect = shape.target.d_model / shape.target.n_layer
    assert aspect == pytest.approx(128 / ASPECT_LIMIT, rel=0.15)
    assert "is held to that" in next(r.how for r in shape.ratios if r.name == "depth_width")


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("scale", [GPU, CPU])
def test_every_shape_of_the_menu_is_carried_at_the_targets_size(name: str, scale: Scale) -> None:
    target, menu = load_target(name), menu_of(name, scale)
    knobs = ("d_model", "ffn_ratio", "kv_group", "head_dim")
    count = 0
    for values in product(*(menu.domains[knob].ends for knob in knobs)):
        changes: dict[str, Any] = dict(zip(knobs, values, strict=True))
        try:
            winner = menu.apply(menu.baseline, changes)
        except SpecError:
            continue
        if menu.broken_constraint(winner, menu.campaign.budget):
            continue
        try:
            shape = carry(winner, target, menu.baseline).target
        except TargetError:
            continue
        count += 1
        off = shape.parameter_count.blocks / target.parameter_count.blocks - 1
        assert abs(off) <= SIZE_TOLERANCE, changes
        assert shape.tokens == target.tokens
        if changes["kv_group"] == menu.baseline.n_head // menu.baseline.kv_heads:
            assert shape.n_head // shape.n_kv_head == target.n_head // target.n_kv_head
    assert count > 30


def test_what_the_target_fixes_stays_and_is_told() -> None:
    winner, baseline = won("llama-7b", activation="gelu", qk_norm=True)
    target = load_target("llama-7b").model_copy(update={"fixed": ("activation",)})
    shape = carry(winner, target, baseline)
    assert (shape.target.activation, shape.target.qk_norm) == ("swiglu", True)
    told = {ratio.name: ratio for ratio in shape.ratios}
    assert told["activation"].how == "dropped: the target fixes it"
    assert not told["activation"].is_carried
    assert told["qk_norm"].is_carried


def test_what_harms_stays_behind_and_takes_the_depth_it_was_paid_with() -> None:
    winner, baseline = won("llama-7b", ffn_ratio=2.5, norm_place="output")
    shape = carry(winner, load_target("llama-7b"), baseline, "ffn_ratio")
    assert numbers(shape.target) == numbers(load_target("llama-7b"))
    assert shape.target.norm_place == "output"
    assert {ratio.name for ratio in shape.ratios if not ratio.is_carried} == {
        "ffn_ratio",
        "depth_width",
    }


def test_numbers_of_a_larger_winner_are_left_behind() -> None:
    """The menu cpu-tiny varies sizes, so its winner's shape may have won by being larger."""
    menu = load_menu("cpu-tiny")
    winner = menu.apply(menu.baseline, {"d_model": 192, "positions": "rotary"})
    target = load_target("gpt-1b")
    shape = carry(winner, target, menu.baseline)
    assert numbers(shape.target) == numbers(target)
    assert shape.target.positions == "rotary"
    told = {ratio.name: ratio.how for ratio in shape.ratios if not ratio.is_carried}
    assert told
    assert all("may have won by size" in how for how in told.values())
    # The target of another menu's winner may have its kind already.
    (kind,) = carry(winner, load_target("llama-7b"), menu.baseline).ratios[-1:]
    assert (kind.name, kind.is_carried, kind.how) == (
        "positions", False, "the target has it already",
    )  # fmt: skip
