import math

import numpy as np
import pytest

from agent.proposers.surrogate.gaussian_process import (
    JITTER,
    GaussianProcess,
    _Data,
    _log_likelihood,
)
from agent.proposers.surrogate.space import Floats

KNOBS = np.array([0, 1, 2, 2])
"""Four coordinates of three knobs."""


def drawn(count: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    points_NP = rng.random((count, 4))
    target_N = np.sin(4 * points_NP[:, 0]) + 0.3 * points_NP[:, 2] + rng.normal(0, 0.05, count)
    return points_NP, target_N, np.full(count, 0.05**2)


def matern(one: Floats, other: Floats, parameters: Floats) -> float:
    lengths = np.exp(parameters[:-2])[KNOBS]
    u = math.sqrt(
        5 * sum(((a - b) / at) ** 2 for a, b, at in zip(one, other, lengths, strict=True))
    )
    return math.exp(parameters[-2]) * (1 + u + u * u / 3) * math.exp(-u)


def test_it_predicts_as_the_textbook_does() -> None:
    points_NP, target_N, variance_N = drawn(12)
    process = GaussianProcess.fit(points_NP, target_N, variance_N, KNOBS)
    known, asked = points_NP, drawn(5, seed=1)[0]
    covariance = np.array([[matern(a, b, process.parameters) for a in known] for b in known])
    covariance += np.diag(math.exp(process.parameters[-1]) * variance_N + JITTER)
    between = np.array([[matern(a, b, process.parameters) for b in known] for a in asked])
    ones = np.ones(len(known))
    level = (
        ones @ np.linalg.solve(covariance, target_N) / (ones @ np.linalg.solve(covariance, ones))
    )
    mean = level + between @ np.linalg.solve(covariance, target_N - level)
    rest = np.einsum("mn,nm->m", between, np.linalg.solve(covariance, between.T))
    found_mean, found_sd = process.predict(asked)
    assert found_mean == pytest.approx(mean, rel=1e-6)
    assert found_sd == pytest.approx(np.sqrt(math.exp(process.parameters[-2]) - rest), rel=1e-5)


def test_the_gradient_is_the_likelihoods() -> None:
    data = _Data(*drawn(15), KNOBS)
    at = np.array([0.2, -0.4, 0.1, 0.3, -0.2])
    _, gradient = _log_likelihood(data, at)
    for place in range(len(at)):
        step = np.zeros(len(at))
        step[place] = 1e-5
        rise = _log_likelihood(data, at + step)[0] - _log_likelihood(data, at - step)[0]
        # The level is refitted too, which changes nothing to first order.
        assert gradient[place] == pytest.approx(rise / 2e-5, rel=1e-4, abs=1e-6)


def test_it_finds_which_knobs_matter() -> None:
    process = GaussianProcess.fit(*drawn(60), KNOBS)
    lengths = np.exp(process.parameters[:3])
    assert lengths[0] < 0.5 * lengths[1]


def test_it_learns_that_runs_are_noisier_than_they_were_said_to_be() -> None:
    points_NP, target_N, _ = drawn(80)
    factors = [
        math.exp(GaussianProcess.fit(points_NP, target_N, np.full(80, sd**2), KNOBS).parameters[-1])
        for sd in (0.025, 0.05, 0.1)
    ]
    assert factors[0] > factors[1] > factors[2]
    assert factors[0] > 1.5
    assert factors[2] < 0.7


def test_it_is_surer_where_it_has_looked_and_of_what_was_run_often() -> None:
    points_NP, target_N, variance_N = drawn(30)
    process = GaussianProcess.fit(points_NP, target_N, variance_N, KNOBS)
    _, here = process.predict(points_NP)
    _, away = process.predict(np.full((1, 4), 3.0))
    assert here.max() < 0.5 * away[0]
    often = process.about(points_NP, target_N, variance_N / 100).predict(points_NP)[1]
    assert (often < here).all()
