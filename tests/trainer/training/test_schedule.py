"""The learning rate of every step, and when training ends."""

from __future__ import annotations

import math

import pytest

from tests.support.configs import config
from trainer.spec import Budget
from trainer.training.schedule import Schedule


def schedule(
    amount: float = 60, unit: str = "steps", horizon: int | None = 1000, **changes: object
) -> Schedule:
    recipe = config(**{"lr": 1e-3, "lr_warmup": 10, "lr_min_ratio": 0.1, **changes})
    return Schedule(recipe, Budget.model_validate({"unit": unit, "amount": amount}), horizon)


def test_warm_up_is_linear_and_ends_at_the_peak() -> None:
    plan = schedule()
    assert [plan.lr(step, 0) for step in (1, 5, 10)] == pytest.approx(
        [1e-3 / 11, 5e-3 / 11, 10e-3 / 11]
    )
    assert plan.lr(11, 0) == 1e-3
    assert plan.lr(12, 0) < 1e-3
    assert schedule(lr_warmup=0).lr(1, 0) == 1e-3


def test_the_cosine_passes_its_middle_and_reaches_its_end() -> None:
    plan = schedule(horizon=110)
    assert plan.lr(1 + 60, 0) == pytest.approx(1e-3 * 0.55)
    assert plan.lr(1 + 110, 0) == pytest.approx(1e-4)
    assert plan.lr(1 + 500, 0) == pytest.approx(1e-4)
    by_hand = 1e-3 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 20 / 100)))
    assert plan.lr(1 + 30, 0) == pytest.approx(by_hand)


def test_the_trained_steps_are_a_prefix_of_the_horizon() -> None:
    short, long = schedule(60), schedule(120)
    assert [short.lr(s, 0) for s in range(1, 61)] == [long.lr(s, 0) for s in range(1, 61)]
    squeezed = schedule(60, horizon=None)
    assert squeezed.lr(60, 0) < 0.11e-3 < short.lr(60, 0)


def test_a_horizon_inside_the_warm_up_leaves_the_minimum() -> None:
    plan = schedule(horizon=5)
    assert plan.lr(10, 0) == pytest.approx(1e-2 / 11)
    assert plan.lr(11, 0) == pytest.approx(1e-4)


def test_budgets_end_in_their_own_unit() -> None:
    assert schedule(60).steps == 60
    assert schedule(8 * 128 * 3 + 1, "tokens").steps == 4
    steps = schedule(3)
    assert [steps.is_last(s, 1e9) for s in (1, 2, 3)] == [False, False, True]
    clock = schedule(2.5, "seconds")
    assert clock.steps is None
    assert not clock.is_last(10_000, 2.4)
    assert clock.is_last(1, 2.5)


def test_a_budget_in_seconds_that_is_its_own_horizon_decays_by_the_clock() -> None:
    plan = schedule(10, "seconds", horizon=None)
    assert plan.lr(50, 5.0) == pytest.approx(1e-3 * 0.55)
    assert plan.lr(50, 11.0) == pytest.approx(1e-4)
    assert plan.lr(5, 9.0) == pytest.approx(5e-3 / 11)
    assert schedule(10, "seconds").lr(50, 9.0) == schedule(60).lr(50, 0)
