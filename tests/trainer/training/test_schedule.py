"""The learning rate of every step, and the end of training."""

import math
import warnings
from typing import Any

import pytest
import torch

from tests.support.configs import config
from tests.support.megatron_on_cpu import needs_megatron
from trainer.schema import Budget
from trainer.training.schedule import Schedule


def schedule(
    amount: float = 60,
    unit: str = "steps",
    horizon: int | None = 1000,
    cooldown: int = 0,
    **changes: object,
) -> Schedule:
    recipe = config(**{"lr": 1e-3, "lr_warmup": 10, "lr_min_ratio": 0.1, **changes})
    budget = Budget.model_validate({"unit": unit, "amount": amount})
    return Schedule(recipe, budget, horizon, cooldown)


AT_30 = 1e-3 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 20 / 100)))


@pytest.mark.parametrize(
    ("changes", "rates"),
    [
        ({}, {1: 1e-3 / 11, 5: 5e-3 / 11, 10: 10e-3 / 11, 11: 1e-3}),
        ({"lr_warmup": 0}, {1: 1e-3}),
        ({"horizon": 110}, {31: AT_30, 61: 1e-3 * 0.55, 111: 1e-4, 501: 1e-4}),
        ({"horizon": 110, "schedule": "linear"}, {11: 1e-3, 36: 775e-6, 111: 1e-4, 500: 1e-4}),
        *(
            (
                {"schedule": "wsd", "decay_share": share},
                {11: 1e-3, begin + 1: 1e-3, 1001: 1e-4, 5000: 1e-4}
                | {
                    done + 1: 1e-3 - 9e-4 * (done - begin) / (1000 - begin)
                    for done in (begin + 1, begin + 50, 999)
                },
            )
            for share, begin in ((0.1, 900), (0.2, 800), (0.5, 500))
        ),
        ({"horizon": 5, "schedule": "wsd"}, {11: 1e-4}),
    ],
    ids=str,
)
def test_rates_are_those_by_hand(changes: dict[str, Any], rates: dict[int, float]) -> None:
    plan = schedule(**changes)
    assert {step: plan.lr(step, 0) for step in rates} == pytest.approx(rates)


def test_budgets_end_in_their_own_unit() -> None:
    assert schedule(60).steps == 60
    assert schedule(8 * 128 * 3 + 1, "tokens").steps == 4
    steps = schedule(3)
    assert [steps.is_last(s, 1e9) for s in (1, 2, 3)] == [False, False, True]
    clock = schedule(2.5, "seconds")
    assert clock.steps is None
    assert not clock.is_last(10_000, 2.4)
    assert clock.is_last(1, 2.5)


@pytest.mark.parametrize(
    ("changes", "rates"),
    [
        ({}, {(50, 5.0): 1e-3 * 0.55, (50, 11.0): 1e-4, (5, 9.0): 5e-3 / 11}),
        ({"schedule": "linear"}, {(50, 5.0): 1e-3 * 0.55}),
        (
            {"schedule": "wsd", "decay_share": 0.4},
            {(50, 5.9): 1e-3, (50, 8.0): 1e-3 * 0.55, (50, 11.0): 1e-4},
        ),
    ],
    ids=str,
)
def test_a_budget_in_seconds_decays_by_the_clock(
    changes: dict[str, Any], rates: dict[tuple[int, float], float]
) -> None:
    plan = schedule(10, "seconds", horizon=None, **changes)
    assert {at: plan.lr(*at) for at in rates} == pytest.approx(rates)
    assert schedule(10, "seconds").lr(50, 9.0) == schedule(60).lr(50, 0)


def test_a_cooldown_ends_every_schedule_on_a_line_to_nothing() -> None:
    for changes in ({}, {"schedule": "wsd"}, {"lr_warmup": 58}):
        plain, cooled = schedule(**changes), schedule(cooldown=9, **changes)
        assert [plain.lr(s, 0) for s in range(1, 52)] == [cooled.lr(s, 0) for s in range(1, 52)]
        falling = [cooled.lr(s, 0) / plain.lr(s, 0) for s in range(52, 61)]
        assert falling == pytest.approx([left / 10 for left in range(9, 0, -1)])
    # A cooldown as long as the run starts to fall at once.
    assert schedule(5, cooldown=5, lr_warmup=0).lr(1, 0) == pytest.approx(1e-3 * 5 / 6)


def test_wsd_does_not_fall_before_it_has_risen() -> None:
    plan = schedule(100, horizon=None, schedule="wsd", decay_share=1.0, lr_warmup=40)
    line = schedule(100, horizon=None, schedule="linear", lr_warmup=40)
    assert [plan.lr(s, 0) for s in range(1, 120)] == [line.lr(s, 0) for s in range(1, 120)]


@needs_megatron
@pytest.mark.parametrize("form", ["cosine", "linear", "wsd"])
def test_after_the_warm_up_rates_are_those_of_megatron_s_scheduler(form: str) -> None:
    """The launch plan's flags select that scheduler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

    plan = schedule(400, horizon=None, schedule=form, decay_share=0.25, lr_warmup=40)
    parameter = torch.nn.Parameter(torch.zeros(1))
    theirs = OptimizerParamScheduler(
        torch.optim.SGD([parameter], lr=1e-3),
        init_lr=0.0,
        max_lr=1e-3,
        min_lr=1e-4,
        lr_warmup_steps=40,
        lr_decay_steps=400,
        lr_decay_style={"wsd": "WSD"}.get(form, form),
        start_wd=0.1,
        end_wd=0.1,
        wd_incr_steps=400,
        wd_incr_style="constant",
        wsd_decay_steps=100,
        lr_wsd_decay_style="linear",
    )
    theirs.step(40)
    for done in range(41, 420):
        theirs.step(1)
        (group,) = theirs.optimizer.param_groups
        assert plan.lr(done + 1, 0) == pytest.approx(group["lr"], rel=1e-9)
