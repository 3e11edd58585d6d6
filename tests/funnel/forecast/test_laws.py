"""Test that the fits of loss laws recover the laws that made their data."""

import numpy as np
import pytest

from autoresearch.errors import HandoffError
from funnel.forecast.scaling_law import FinishedRun, ScalingFit, ScalingLaw, fit_scaling_law

CHINCHILLA = ScalingLaw(floor=1.8172, a=482.01, alpha=0.3478, b=2085.43, beta=0.3658)
"""Besiroglu et al. 2024 (arXiv 2404.10102), table 1: E, A, alpha, B, beta."""


def grid(noise: float, seed: int) -> list[FinishedRun]:
    """Return runs whose sizes and lengths vary independently, as in a published grid."""
    rng = np.random.default_rng(seed)
    return [
        FinishedRun(
            params=n, tokens=d, loss=float(CHINCHILLA.at(n, d)) * np.exp(rng.normal(0, noise))
        )
        for n in np.geomspace(1e8, 1.6e10, 8)
        for d in np.geomspace(2e9, 3e11, 8)
    ]


def rungs(noise: float, seed: int) -> list[FinishedRun]:
    """Return a ladder's runs: twenty tokens per parameter, two seeds at the smallest size."""
    rng = np.random.default_rng(seed)
    sizes = (1e7, 1e7, 2e7, 4e7, 8e7, 1.6e8)
    return [
        FinishedRun(
            params=n,
            tokens=20 * n,
            loss=float(CHINCHILLA.at(n, 20 * n)) * np.exp(rng.normal(0, noise)),
        )
        for n in sizes
    ]


def inside(fit: ScalingFit, params: float, tokens: float, loss: float) -> bool:
    low, _, high = fit.predict(params, tokens)
    return bool(low <= loss <= high)


def test_many_runs_give_back_the_law_they_were_made_by() -> None:
    fit = fit_scaling_law(grid(0.003, 1), seed=0)
    assert fit.law.floor == pytest.approx(CHINCHILLA.floor, rel=0.04)
    assert fit.law.alpha == pytest.approx(CHINCHILLA.alpha, abs=0.04)
    assert fit.law.beta == pytest.approx(CHINCHILLA.beta, abs=0.04)
    assert fit.scatter == pytest.approx(0.003, rel=0.4)
    low, high = np.percentile([law.alpha for law in fit.replicates], [2.5, 97.5])
    assert low < CHINCHILLA.alpha < high


def test_one_ruined_run_does_not_move_the_law() -> None:
    runs = grid(0.002, 2)
    ruined = [runs[0].model_copy(update={"loss": 2 * runs[0].loss}), *runs[1:]]
    sound, spoilt = (fit_scaling_law(r, seed=0).law for r in (runs, ruined))
    assert float(spoilt.at(7e10, 1.4e12)) == pytest.approx(float(sound.at(7e10, 1.4e12)), rel=0.005)


def test_intervals_of_a_ladder_cover_what_they_say_and_widen_with_distance() -> None:
    true_rng = np.random.default_rng(3)
    near = far = 0
    trials = 40
    for seed in range(trials):
        fit = fit_scaling_law(rungs(0.004, seed), seed=seed)
        for params in (3.2e8, 7e9):
            loss = float(CHINCHILLA.at(params, 20 * params)) * np.exp(true_rng.normal(0, 0.004))
            covered = inside(fit, params, 20 * params, loss)
            near, far = near + (covered and params < 1e9), far + (covered and params > 1e9)
        low, middle, high = fit.predict([3.2e8, 7e9], [6.4e9, 1.4e11])
        assert ((high - low) / middle)[1] > ((high - low) / middle)[0]
    assert near >= 0.9 * trials
    assert far >= 0.9 * trials


def test_the_same_runs_and_seed_give_the_same_fit() -> None:
    runs = rungs(0.004, 5)
    one, two = (fit_scaling_law(runs, seed=7) for _ in range(2))
    assert (one.law, one.replicates) == (two.law, two.replicates)


def test_too_few_runs_and_runs_of_one_size_are_refused() -> None:
    runs = rungs(0.004, 0)
    with pytest.raises(HandoffError):
        fit_scaling_law(runs[:4], seed=0)
    same = [FinishedRun(params=1e7, tokens=(1 + k / 10) * 1e8, loss=3.0) for k in range(6)]
    with pytest.raises(HandoffError):
        fit_scaling_law(same, seed=0)
