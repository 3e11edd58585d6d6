"""In menus of ratios every config has the baseline's size and round-trips through its knobs. The
rails refuse few local proposals."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest

from agent.menu.files import load_menu, parse_menu
from agent.menu.proxy_menu import ProxyMenu
from agent.menu.rails import Rails
from autoresearch.errors import SpecError, TargetError
from funnel.targets.architecture import TargetArchitecture, load_target
from funnel.targets.proxies import CPU, GPU, Scale, ShapeCheck, find_proxy
from funnel.targets.ratio_family import RatioFamily
from funnel.targets.ratio_menu import ratio_menu_text
from funnel.targets.ratios import RATIO_TOLERANCE, RATIOS, Equal
from trainer.schema import Config

SIZE_TOLERANCE = {"spark-354m": 0.005, "cpu-tiny": 0.015}
"""Tolerance of a config's size, relative to the baseline's: half the grain of d_ff."""
CASES = [("llama-7b", GPU, "params"), ("gpt-1b", GPU, "flops"), ("llama-70b", CPU, "params")]


def family_of(
    target: TargetArchitecture, scale: Scale = GPU, equal: Equal = "params"
) -> RatioFamily:
    base = find_proxy(target, scale=scale, params=scale.default_params, tokenizer=scale.tokenizer)
    return RatioFamily(base, equal)


@cache
def case(name: str, scale: Scale, equal: Equal) -> tuple[RatioFamily, ProxyMenu]:
    family = family_of(load_target(name), scale, equal)
    return family, parse_menu(ratio_menu_text(family), "generated")


def test_the_shipped_proxy_of_llama_7b_is_what_the_command_writes() -> None:
    """Its baseline has the target's own ratios, so the default of docker compose searches what the
    large run will use."""
    target = load_target("llama-7b")
    menu = load_menu("llama-7b-ratios")
    assert menu.toml == ratio_menu_text(family_of(target))
    assert not ShapeCheck.of(menu, target).at_defaults


def size_of(config: Config, family: RatioFamily) -> float:
    """Count the weights of the blocks' matrices, or FLOPs per token over 6 (PaLM, appendix B)."""
    d, kv_width = config.d_model, config.d_model * config.kv_heads // config.n_head
    attention = 2 * d * d + 2 * d * kv_width
    weights = config.n_layer * (attention + (3 if config.gated else 2) * d * config.d_ff)
    if family.size.equal == "params":
        return weights
    return weights + family.base.vocab_size * d + 2 * config.n_layer * d * config.seq_len


@cache
def shapes(name: str, scale: Scale, equal: Equal) -> tuple[tuple[dict[str, Any], Config], ...]:
    """Return a menu's valid configs that differ in shape, each with its knobs."""
    _, menu = case(name, scale, equal)
    names = ("d_model", "head_dim", "kv_group", "ffn_ratio", "activation")
    found = []
    for values in product(*(menu.domains[name].ends for name in names)):
        changes = dict(zip(names, values, strict=True))
        try:
            config = menu.apply(menu.baseline, changes)
        except SpecError:
            continue
        if menu.broken_constraint(config, menu.campaign.budget) is None:
            found.append((changes, config))
    return tuple(found)


@pytest.mark.parametrize(("name", "scale", "equal"), CASES)
def test_every_shape_has_the_baselines_size(name: str, scale: Scale, equal: Equal) -> None:
    family, menu = case(name, scale, equal)
    wanted = size_of(menu.baseline, family)
    seen = set()
    for changes, config in shapes(name, scale, equal):
        assert abs(size_of(config, family) / wanted - 1) <= SIZE_TOLERANCE[scale.menu], changes
        values = menu.knob_values(config)
        assert {knob: values[knob] for knob in changes} == changes
        assert menu.apply(config, {}) == config
        assert menu.apply(config, menu.knob_values(menu.baseline)) == menu.baseline
        # By hand: the ratio that the baseline's heads and activation would have in this config.
        nominal = family.size.ratio(config.d_model, config.n_layer)
        assert abs(nominal / changes["ffn_ratio"] - 1) <= RATIO_TOLERANCE + 1e-9
        seen.add(config.config_hash)
    assert len(seen) > 40


@pytest.mark.parametrize(("name", "scale", "equal"), CASES)
def test_the_baseline_has_the_targets_shape(name: str, scale: Scale, equal: Equal) -> None:
    family, menu = case(name, scale, equal)
    target, base = family.target, menu.baseline
    assert base.d_ff / base.d_model == target.ffn_ratio
    assert base.n_head // base.kv_heads == target.n_head // target.n_kv_head
    assert (base.d_model // base.n_head == target.head_dim) is (scale is GPU)
    assert abs((base.n_layer / base.d_model) / (target.n_layer / target.d_model) - 1) <= 0.1
    for kind in ("activation", "norm", "positions", "tie_embeddings", "norm_place", "qk_norm"):
        assert getattr(base, kind) == getattr(target, kind)
    assert len(family.free) >= 8
    for ratio in family.free:
        doc = menu.knobs[RATIOS[ratio].knob].doc
        assert RATIOS[ratio].why in doc
        assert "arXiv" in doc
    optimizer = {"lr", "weight_decay", "beta1", "beta2", "batch_size", "lr_warmup", "schedule"}
    assert optimizer <= menu.knobs.keys()


@pytest.mark.parametrize(("name", "scale", "equal"), CASES)
def test_local_proposals_mostly_pass_the_rails(name: str, scale: Scale, equal: Equal) -> None:
    """Random proposals change up to three knobs, from the baseline and from distant shapes."""
    _, menu = case(name, scale, equal)
    rails = Rails(menu, budget=menu.campaign.budget)
    rng = Random(1)
    asked = allowed = 0
    references = [
        menu.baseline,
        *(config for _, config in rng.sample(shapes(name, scale, equal), 4)),
    ]
    for _ in range(40):
        for reference in references:
            knobs = rng.sample(list(menu.knobs), rng.randint(1, 3))
            changes = {knob: menu.domains[knob].draw(rng) for knob in knobs}
            verdict = rails.check(
                json.dumps({"changes": changes, "reason": "a draw"}), reference
            ).verdict
            asked += 1
            allowed += verdict.allowed
            assert verdict.allowed or verdict.rail in {"cross", "novelty"}
    assert allowed / asked >= 0.7


def test_a_ratio_that_no_whole_shape_has_is_refused_with_what_it_would_be() -> None:
    _, menu = case("llama-7b", CPU, "params")
    rails = Rails(menu, budget=menu.campaign.budget)
    for width, ratio in product(menu.domains["d_model"].ends, menu.domains["ffn_ratio"].ends):
        changes = {"d_model": width, "ffn_ratio": ratio, "kv_group": 1}
        reply = json.dumps({"changes": changes, "reason": "a corner"})
        verdict = rails.check(reply, menu.baseline).verdict
        assert verdict.allowed or "ffn_ratio" in verdict.why


def drawn(menu: ProxyMenu, knobs: Iterable[str]) -> Iterator[Config]:
    """Yield trainable configs with random values of these knobs."""
    rng = Random(0)
    for _ in range(50):
        with suppress(SpecError):
            yield menu.apply(menu.baseline, {name: menu.domains[name].draw(rng) for name in knobs})


def test_fixed_ratios_are_no_knobs() -> None:
    fixed = ("head_dim", "kv_group", "activation", "norm", "tie_embeddings")
    family = family_of(fixing(*fixed), CPU)
    menu = parse_menu(ratio_menu_text(family), "generated")
    assert not set(fixed) & set(menu.knobs)
    assert {"d_model", "ffn_ratio", "norm_place", "qk_norm", "positions"} <= set(menu.knobs)
    for config in drawn(menu, ["d_model"]):
        assert config.d_model // config.n_head == family.head_dim
        assert config.n_head // config.kv_heads == 4


def fixing(*fixed: str) -> TargetArchitecture:
    return load_target("llama-7b").model_copy(update={"fixed": fixed})


def test_depth_and_ffn_ratio_are_fixed_together_and_leave_one_width_and_depth() -> None:
    with pytest.raises(TargetError):
        family_of(fixing("depth_width"))
    family = family_of(fixing("depth_width", "ffn_ratio"))
    menu = parse_menu(ratio_menu_text(family), "generated")
    for config in drawn(menu, menu.knobs):
        assert (config.d_model, config.n_layer) == (1024, 8)
