"""A rung's best rate is a multiple of the rules' rate, or unknown if the data cannot locate it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from funnel.ladder.rates import REACH, RateOptimum, TriedRate, rate_optima


def tried(
    best: float, *, curvature: float = 0.05, luck: float = 0.003, seed: int = 0, rung: int = 1
) -> Iterator[TriedRate]:
    rng = np.random.default_rng(seed)
    for run_seed in (900, 901):
        level = 3.0 + rng.normal(0, 0.02)
        for factor in (0.5, 1.0, 2.0):
            off = math.log(factor / best)
            yield TriedRate(
                rung=rung,
                params=100_000 * rung,
                length=2_000_000,
                seed=run_seed,
                factor=factor,
                val_bpb=level + curvature * off**2 + rng.normal(0, luck),
            )


def optimum(best: float, **world: float) -> RateOptimum:
    (found,) = rate_optima(tried(best, **world))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("best", [0.6, 1.0, 1.7])
def test_the_best_rate_is_found(best: float) -> None:
    found = optimum(best, luck=1e-6)
    assert found.factor == pytest.approx(best, rel=1e-2)
    assert found.is_bounded
    assert (found.low <= 1 <= found.high) == (best == 1.0)
    assert found.tried == (0.5, 1.0, 2.0)


def test_intervals_hold_what_they_say() -> None:
    held = 0
    for seed in range(300):
        found = optimum(1.3, seed=seed)
        held += found.low * 0.995 <= 1.3 <= found.high * 1.005
    assert held / 300 > 0.9


def test_where_the_score_does_not_turn_the_interval_is_open() -> None:
    found = optimum(1.0, curvature=0.0, luck=0.01)
    assert not found.is_bounded
    far = optimum(40.0, luck=1e-6)
    assert far.factor is None
    assert far.high == pytest.approx(REACH)


def test_rungs_pool_their_scatter_and_keep_their_places() -> None:
    both = [*tried(0.8, rung=1), *tried(1.6, rung=2, seed=1)]
    first, second = rate_optima(both)
    assert (first.rung, second.rung) == (1, 2)
    assert first.factor is not None and second.factor is not None
    assert first.factor < second.factor


def test_two_rates_are_no_parabola() -> None:
    assert rate_optima([run for run in tried(1.0) if run.factor != 2.0]) == ()
