"""Calibration finds proxy metrics that rank better, rejects others, and adds up costs correctly."""

import math

import numpy as np
import pytest

from trainer.spec import Budget
from trajectory.calibrated import Calibrated, Correlation
from trajectory.calibration import (
    Scored,
    best_of,
    compared,
    extrapolated,
    fitted,
    times_to_gain,
)
from trajectory.statistics.fidelity import spearman

N = 40


def noisy(truth: np.ndarray, sd: float, seed: int) -> list[float]:
    return (truth + sd * np.random.default_rng(seed).normal(size=len(truth))).tolist()


@pytest.fixture
def truth() -> np.ndarray:
    return np.random.default_rng(1).normal(size=N)


def found(truth: np.ndarray, **ways: Scored) -> Calibrated:
    return Calibrated(
        budget=Budget(),
        long_steps=1000,
        long_seeds=1,
        n=len(truth),
        best_n=len(best_of(truth.tolist())),
        proxy_metrics=compared(ways, truth.tolist()),
    )


def test_a_way_that_ranks_better_is_advised_where_it_costs_no_more(truth: np.ndarray) -> None:
    own = Scored(noisy(truth, 1.0, 2), 1.0)
    better, dear = Scored(noisy(truth, 0.1, 3), 1.05), Scored(noisy(truth, 0.05, 4), 3.0)
    worse = Scored(noisy(truth, 3.0, 5), 1.0)
    every = found(truth, own=own, better=better, dear=dear, worse=worse)
    assert [way.name for way in every.proxy_metrics] == ["own", "better", "dear", "worse"]
    assert every.advised is not None and every.advised.name == "better"
    by_name = {way.name: way for way in every.proxy_metrics}
    assert by_name["own"].gain is None
    assert by_name["worse"].gain is not None and by_name["worse"].gain.hi < 0
    assert by_name["better"].spearman.value == pytest.approx(
        spearman(better.scores, truth.tolist())
    )
    assert found(truth, own=own, dear=dear, worse=worse).advised is None


def test_what_only_seems_better_is_not_advised(truth: np.ndarray) -> None:
    own = Scored(noisy(truth, 1.0, 2), 1.0)
    others = {f"way{seed}": Scored(noisy(truth, 1.0, seed), 1.0) for seed in range(10, 22)}
    every = found(truth, own=own, **others)
    assert max(way.spearman.value for way in every.proxy_metrics) > every.own.spearman.value
    assert every.advised is None


def test_the_first_of_a_way_forgoes_what_the_best_is_ahead(truth: np.ndarray) -> None:
    long = truth.tolist()
    order = sorted(range(N), key=lambda config: long[config])
    third_first = [float(order.index(config)) for config in range(N)]
    third_first[order[2]] = -1.0
    (way,) = compared({"own": Scored(third_first, 1.0)}, long)
    assert way.forgone_bpb == pytest.approx(long[order[2]] - long[order[0]])


def test_the_best_tenth_has_five_at_least_and_lost_runs_rank_last() -> None:
    long = [math.inf, *range(59, 0, -1)]
    assert best_of(long[:41]) == [40, 39, 38, 37, 36]
    assert best_of(long) == [59, 58, 57, 56, 55, 54]
    (way,) = compared({"own": Scored(list(long), 1.0)}, long)
    assert way.spearman.value == pytest.approx(1)


def test_a_line_over_the_logarithm_is_followed_to_its_end() -> None:
    looks = [(step, 5 - 0.5 * math.log(step)) for step in (15, 30, 45, 60)]
    assert extrapolated(looks, 1000) == pytest.approx(5 - 0.5 * math.log(1000))
    assert extrapolated([(15, 4.0), (30, math.inf)], 1000) == math.inf


def test_a_fit_uses_what_each_way_knows(truth: np.ndarray) -> None:
    other = np.random.default_rng(8).normal(size=N)
    ways = [(truth + other).tolist(), other.tolist(), noisy(truth, 2.0, 9)]
    assert spearman(fitted(ways, truth.tolist()), truth.tolist()) > 0.95
    assert max(spearman(way, truth.tolist()) for way in ways) < 0.9


def test_a_fit_does_not_see_the_config_that_it_predicts(truth: np.ndarray) -> None:
    rng = np.random.default_rng(11)
    ways = [rng.normal(size=N).tolist() for _ in range(20)]
    assert abs(spearman(fitted(ways, truth.tolist()), truth.tolist())) < 0.4
    moved = truth.tolist()
    moved[0] += 5
    assert fitted(ways, moved)[0] == fitted(ways, truth.tolist())[0]


def rho(value: float) -> Correlation:
    return Correlation(value=value, lo=value, hi=value)


def test_what_each_further_gain_costs_by_hand() -> None:
    curve = [(0.5, rho(0.4)), (1.0, rho(0.5)), (2.0, rho(0.6)), (4.0, rho(0.58)), (8.0, rho(0.66))]
    costs = times_to_gain(curve)
    assert [level for level, _ in costs] == pytest.approx([0.55, 0.6, 0.65])
    # Halfway to 2 on a logarithmic scale, at 2, and five sixths of the distance from 4 to 8.
    assert [times for _, times in costs] == pytest.approx([2**0.5, 2, 4 * 2 ** (5 / 6)])
    assert times_to_gain([(1.0, rho(0.5)), (2.0, rho(0.4))]) == []
    assert times_to_gain([]) == []


@pytest.mark.parametrize(("n", "worlds"), [(14, 100), (40, 40)])
def test_a_fit_to_noise_does_not_lean_against_the_truth(n: int, worlds: int) -> None:
    found = []
    for world in range(worlds):
        rng = np.random.default_rng([n, world])
        long = rng.normal(size=n).tolist()
        found.append(spearman(fitted([rng.normal(size=n).tolist() for _ in range(9)], long), long))
    assert abs(np.mean(found)) < 0.12
