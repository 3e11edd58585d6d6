"""Test the rule that prunes a trial at its futility bound."""

from __future__ import annotations

import random

import pytest

from agent.search.pruning import MARGIN_NATS, MARGIN_SDS, prune_rule
from tests.support.configs import config
from trainer.spec import Budget, CurvePoint

SIXTY = Budget(unit="steps", amount=60)


def curve(offset: float, steps: int = 60, noise: float = 0.0, seed: int = 0) -> list[CurvePoint]:
    """Return a curve whose loss falls from 7 to about 4 as 1/step."""
    rng = random.Random(seed)
    return [
        CurvePoint(
            step=step,
            tokens=step * 1024,
            loss=4 + 3 / step + offset + rng.gauss(0, noise),
            lr=1e-3,
            grad_norm=1.0,
            elapsed_s=step * 0.05,
        )
        for step in range(1, steps + 1)
    ]


def test_the_rule_looks_at_a_third_of_the_budget_with_the_stated_margin() -> None:
    rule = prune_rule([curve(0.0), curve(0.2)], config(), config(), SIXTY)
    assert rule is not None
    assert (rule.at_step, rule.window) == (20, 5)
    level = sum(4 + 3 / step for step in range(16, 21)) / 5
    sd = 0.2 / 2**0.5
    assert rule.max_loss == pytest.approx(level + 0.1 + MARGIN_SDS * sd)


def test_the_margin_is_never_less_than_the_floor() -> None:
    rule = prune_rule([curve(0.0), curve(0.0)], config(), config(), SIXTY)
    assert rule is not None
    level = sum(4 + 3 / step for step in range(16, 21)) / 5
    assert rule.max_loss == pytest.approx(level + MARGIN_NATS)


def test_a_replicate_of_the_reference_is_never_hopeless() -> None:
    rng = random.Random(3)
    references = [curve(rng.gauss(0, 0.05), noise=0.05, seed=n) for n in range(5)]
    rule = prune_rule(references, config(), config(), SIXTY)
    assert rule is not None
    for n in range(1000):
        seen = curve(rng.gauss(0, 0.05), noise=0.05, seed=100 + n)[15:20]
        assert sum(point.loss for point in seen) / 5 < rule.max_loss


def test_nothing_is_pruned_without_two_curves_or_against_a_clock() -> None:
    assert prune_rule([curve(0.0)], config(), config(), SIXTY) is None
    assert prune_rule([[], curve(0.0)], config(), config(), SIXTY) is None
    seconds = Budget(unit="seconds", amount=10)
    assert prune_rule([curve(0), curve(0)], config(), config(), seconds) is None
    assert prune_rule([curve(0, 6)] * 2, config(), config(), Budget(amount=6)) is None


def test_a_budget_in_tokens_is_compared_at_the_same_share_of_tokens() -> None:
    tokens = Budget(unit="tokens", amount=60 * 1024)
    half = config(batch_size=4)
    rule = prune_rule([curve(0.0), curve(0.0)], config(), half, tokens)
    assert rule is not None
    assert rule.at_step == 40


def test_logged_steps_that_skip_the_window_are_no_evidence() -> None:
    sparse = [point for point in curve(0.0) if point.step % 10 == 1]
    rule = prune_rule([sparse, sparse], config(), config(), SIXTY)
    assert rule is None
