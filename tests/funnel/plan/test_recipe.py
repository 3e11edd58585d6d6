"""Test the recipes of a plan: carried to the target, each from one run, with its functions."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from funnel.cost.gpus import GPUS
from funnel.plan.booking import Booking, make_booking
from funnel.plan.case import read_case
from funnel.plan.layout import Cluster
from funnel.plan.projection import code_patch, project
from funnel.plan.recipe import Recipe, batch_words, make_recipes
from funnel.targets.architecture import load_target
from tests.support.configs import config


@pytest.fixture(scope="module")
def booking() -> Booking:
    cluster = Cluster(nodes=1, gpus=8, gpu=GPUS["h100"])
    return make_booking(load_target("llama-7b"), cluster, mfu=0.4, gpu_hourly_usd=2.5)


def flag(recipe: Recipe, name: str) -> float:
    (found,) = [each for each in recipe.flags if each.name == name]
    return float(found.value or "nan")


@pytest.mark.parametrize("batch", [None, 16, 130, 512])
def test_rates_are_for_the_batch_taken(stressed: Path, booking: Booking, batch: int | None) -> None:
    recipe = make_recipes(read_case(stressed).candidates, booking, batch)[0]
    projection, schedule = recipe.projection, recipe.schedule
    assert projection.tokens_per_step == schedule.tokens_per_step
    assert projection.steps == schedule.steps == flag(recipe, "--train-iters")
    assert projection.config.batch_size == flag(recipe, "--global-batch-size")
    assert flag(recipe, "--lr") == pytest.approx(projection.base_lr)
    assert flag(recipe, "--weight-decay") == pytest.approx(projection.config.weight_decay)
    assert batch_words(recipe) is not None


def test_the_patch_runs_and_compares_a_counterpart_with_the_reference() -> None:
    codes = {
        "code.activation": "return F.relu(x).square()",
        "code.schedule": "return min_ratio + 1 / step",
        "code.residual": "def residual(x, branch, layer, n_layer, *, gain: D = 0.5):\n"
        "    return x + gain * branch",
    }
    space: dict[str, Any] = {}
    exec(code_patch(config(activation="gelu", **codes)), space)
    x = torch.linspace(-2, 2, 9)
    space["same"]("activation", lambda x: x.clamp(min=0) ** 2, x)
    with pytest.raises(AssertionError):
        space["same"]("activation", torch.relu, x)
    assert space["schedule"](2, 100, 10) == pytest.approx(config().lr_min_ratio + 0.5)
    space["same"]("residual", lambda x, b, i, n: x + b / 2, x, x, 0, 4)


TARGET = load_target("llama-7b")
PROXY = config(
    n_layer=8,
    n_head=8,
    n_kv_head=2,
    d_model=1024,
    d_ff=3584,
    activation="swiglu",
    norm="rmsnorm",
    positions="rotary",
    tie_embeddings=False,
    lr=3e-4,
    lr_warmup=5,
    batch_size=16,
    seq_len=1024,
)


def test_a_proxy_a_quarter_as_wide() -> None:
    """The factors by hand: a quarter for width, a half for depth, (161 B / 16 M)^-0.3 for length
    and sqrt(1.45 M / 16,384) for the batch."""
    projection = project(PROXY, TARGET, horizon_steps=1000)
    target = {"d_model": 4096, "n_layer": 32, "d_ff": 14336, "n_head": 32, "n_kv_head": 8}
    kept = PROXY.model_dump(include={"lr_min_ratio", "grad_clip", "beta1", "beta2", "precision"})
    wanted = target | kept | {"seq_len": 8192}
    assert projection.config.model_dump(include=set(wanted)) == wanted
    everywhere = (160_605_224_960 / 16_384_000) ** -0.3 * (177 / 2) ** 0.5
    assert projection.config.lr == pytest.approx(3e-4 / 4 / 2 * everywhere)
    assert projection.base_lr == pytest.approx(4 * projection.config.lr)
    assert projection.base_width == 1024
    other = TARGET.model_copy(update={"lr_rule": "sqrt_width"})
    shortcut = project(PROXY, other, horizon_steps=1000)
    assert shortcut.config.lr == pytest.approx(3e-4 / 2 / 2 * everywhere)
    assert shortcut.base_lr == shortcut.config.lr
    # 160,605,224,960 tokens are 20 per parameter; 0.58 times their power of 0.571 is 1.45 million.
    assert (projection.config.batch_size, projection.tokens_per_step) == (177, 1_449_984)
    assert projection.steps == math.ceil(160_605_224_960 / 1_449_984) == 110_764
    assert projection.warmup_fraction == 0.005
    assert projection.config.lr_warmup == 554
    assert projection.departures == ()


def test_a_slowed_run_has_every_rate_lower_and_its_own_decay() -> None:
    run = project(PROXY, TARGET, horizon_steps=1000)
    slowed = run.slowed(0.5)
    assert slowed.config.lr == run.config.lr / 2
    assert slowed.base_lr == run.base_lr / 2
    assert slowed.source.lr == PROXY.lr / 2
    (told,) = (each for each in slowed.carried if each.name == "lr")
    assert (told.proxy, told.target) == (slowed.source.lr, slowed.config.lr)
    assert slowed.config.model_copy(update={"lr": run.config.lr}) == run.config


def test_a_proxy_of_another_shape_is_carried_and_named() -> None:
    departures = project(config(), TARGET, horizon_steps=1000).departures
    assert {
        "head_dim is 32, the target's 128",
        "activation is gelu, the target's swiglu",
        "n_layer / d_model is 1 / 32, the target's 1 / 128 (+300%)",
    } <= set(departures)
