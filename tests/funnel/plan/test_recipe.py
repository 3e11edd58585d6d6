"""Each recipe of a plan takes its batch, steps, rates and decay from a single run."""

from __future__ import annotations

from pathlib import Path

import pytest

from funnel.cost.gpus import GPUS
from funnel.plan.booking import Booking, make_booking
from funnel.plan.case import read_case
from funnel.plan.layout import Cluster
from funnel.plan.recipe import Carrying, Recipe, batch_words, make_recipes
from funnel.target.architecture import load_target
from funnel.transfer.rules import RuleChoice, timescale


@pytest.fixture(scope="module")
def booking() -> Booking:
    cluster = Cluster(nodes=1, gpus=8, gpu=GPUS["h100"])
    return make_booking(load_target("llama-7b"), cluster, mfu=0.4, gpu_hourly_usd=2.5)


def winner(stressed: Path, booking: Booking, **carrying: object) -> Recipe:
    recipes = make_recipes(
        read_case(stressed).candidates,
        booking,
        Carrying(**carrying),
    )
    return recipes[0]


def flag(recipe: Recipe, name: str) -> float:
    (found,) = [each for each in recipe.flags if each.name == name]
    return float(found.value or "nan")


@pytest.mark.parametrize("batch", [None, 16, 130, 512])
def test_what_the_layout_takes_is_what_the_rates_are_carried_for(
    stressed: Path, booking: Booking, batch: int | None
) -> None:
    recipe = winner(stressed, booking, batch=batch)
    projection, schedule = recipe.projection, recipe.schedule
    assert projection.tokens_per_step == schedule.tokens_per_step
    assert projection.steps == schedule.steps == flag(recipe, "--train-iters")
    assert projection.config.batch_size == flag(recipe, "--global-batch-size")
    assert flag(recipe, "--lr") == pytest.approx(projection.base_lr)
    assert flag(recipe, "--weight-decay") == pytest.approx(projection.config.weight_decay)
    assert batch_words(recipe) is not None


def test_another_global_batch_re_derives_rate_steps_and_decay(
    stressed: Path, booking: Booking
) -> None:
    one, other = (winner(stressed, booking, batch=batch) for batch in (64, 256))
    assert flag(other, "--lr") == pytest.approx(2 * flag(one, "--lr"))
    assert other.schedule.steps == pytest.approx(one.schedule.steps / 4, rel=1e-3)
    scales = [
        timescale(
            each.projection.config.lr, each.projection.config.weight_decay, each.schedule.steps
        )
        for each in (one, other)
    ]
    assert scales[0] == pytest.approx(scales[1])
    assert flag(other, "--lr-warmup-iters") == pytest.approx(
        flag(one, "--lr-warmup-iters") / 4, abs=1
    )


def test_rules_that_are_asked_for_are_taken(stressed: Path, booking: Booking) -> None:
    rules = RuleChoice(width="step_law", horizon="microsoft", batch="power_lines")
    recipe = winner(stressed, booking, rules=rules)
    assert recipe.projection.rules == rules
    assert recipe.schedule.tokens_per_step == pytest.approx(1.23e6, rel=0.05)
    assert "--use-mup" not in [each.name for each in recipe.flags]
    assert flag(recipe, "--lr") == pytest.approx(recipe.projection.config.lr)
