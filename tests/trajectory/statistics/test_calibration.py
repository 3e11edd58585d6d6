"""Calibration finds proxy metrics that rank better, and rejects others."""

import math

import numpy as np
import pytest

from trainer.schema import Budget
from trajectory.calibrated import Calibrated
from trajectory.statistics.fidelity import best_of, compared, spearman

N = 40


def noisy(truth: np.ndarray, sd: float, seed: int) -> list[float]:
    return (truth + sd * np.random.default_rng(seed).normal(size=len(truth))).tolist()


@pytest.fixture
def truth() -> np.ndarray:
    return np.random.default_rng(1).normal(size=N)


def found(truth: np.ndarray, **ways: list[float]) -> Calibrated:
    return Calibrated(
        budget=Budget(),
        long_steps=1000,
        long_seeds=1,
        n=len(truth),
        best_n=len(best_of(truth.tolist())),
        proxy_metrics=compared(ways, truth.tolist()),
    )


def test_a_way_that_ranks_better_is_advised(truth: np.ndarray) -> None:
    own, better, worse = (noisy(truth, sd, seed) for sd, seed in ((1.0, 2), (0.1, 3), (3.0, 5)))
    every = found(truth, own=own, better=better, worse=worse)
    assert [way.name for way in every.proxy_metrics] == ["own", "better", "worse"]
    assert every.advised is not None and every.advised.name == "better"
    by_name = {way.name: way for way in every.proxy_metrics}
    assert by_name["own"].gain is None
    assert by_name["worse"].gain is not None and by_name["worse"].gain.hi < 0
    assert by_name["better"].spearman.value == pytest.approx(spearman(better, truth.tolist()))
    assert found(truth, own=own, worse=worse).advised is None


def test_what_only_seems_better_is_not_advised(truth: np.ndarray) -> None:
    others = {f"way{seed}": noisy(truth, 1.0, seed) for seed in range(10, 22)}
    every = found(truth, own=noisy(truth, 1.0, 2), **others)
    assert max(way.spearman.value for way in every.proxy_metrics) > every.own.spearman.value
    assert every.advised is None


def test_the_first_of_a_way_forgoes_what_the_best_is_ahead(truth: np.ndarray) -> None:
    long = truth.tolist()
    order = sorted(range(N), key=lambda config: long[config])
    third_first = [float(order.index(config)) for config in range(N)]
    third_first[order[2]] = -1.0
    (way,) = compared({"own": third_first}, long)
    assert way.forgone_bpb == pytest.approx(long[order[2]] - long[order[0]])


def test_the_best_tenth_has_five_at_least_and_lost_runs_rank_last() -> None:
    long = [math.inf, *range(59, 0, -1)]
    assert best_of(long[:41]) == [40, 39, 38, 37, 36]
    assert best_of(long) == [59, 58, 57, 56, 55, 54]
    (way,) = compared({"own": list(long)}, long)
    assert way.spearman.value == pytest.approx(1)
