"""Test that the fits of loss laws recover the laws that made their data."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autoresearch.errors import HandoffError
from funnel.forecast.loss_law import LawBand, fit_loss_law
from funnel.forecast.power_law import fit_power_laws
from funnel.forecast.scaling_fit import fit_scaling_law
from funnel.forecast.scaling_law import FinishedRun, ScalingFit, ScalingLaw
from tests.support.configs import config
from tests.support.stressed import curve, law
from trainer.spec import CurvePoint

OF = config()
TRUE = law()
SEEN = np.geomspace(60, 480, 8) * OF.tokens_per_step
BEYOND = np.geomspace(4, 64, 5) * 500 * OF.tokens_per_step


def band(seed: int, *, runs: int = 2, level_sd: float = 0.01, noise: float = 0.1) -> LawBand:
    curves = [
        curve(OF, TRUE, seed=10 * seed + run, level_sd=level_sd, noise=noise) for run in range(runs)
    ]
    return fit_loss_law(curves, warmup=OF.lr_warmup, run_sd=level_sd, seed=0)


def share_inside(of: LawBand, tokens: np.ndarray) -> float:
    low, _, high = of.quantiles(tokens)
    truth = np.array([TRUE(t) for t in tokens])
    return float(((low <= truth) & (truth <= high)).mean())


def test_the_band_holds_the_truth_about_as_often_as_it_says() -> None:
    bands = [band(seed) for seed in range(40)]
    assert np.mean([share_inside(b, SEEN) for b in bands]) > 0.9
    assert np.mean([share_inside(b, BEYOND) for b in bands]) > 0.9
    low, _, high = bands[0].quantiles(SEEN)
    assert (high / low < 1.1).all(), "nor is it so wide that it says nothing"


def test_doubt_grows_beyond_what_was_seen_and_never_upwards() -> None:
    found = band(1)
    low, _, high = found.quantiles(BEYOND)
    seen_low, _, seen_high = found.quantiles(np.array([float(found.fall.to_tokens)]))
    assert (np.diff(np.log(high / low)) > 0).all()
    assert (high <= seen_high[0] * (1 + 1e-9)).all()
    assert (low < seen_low[0]).all()


def test_one_run_will_do_and_the_same_seed_gives_the_same_band() -> None:
    one, again = band(3, runs=1), band(3, runs=1)
    assert one.fall == again.fall
    assert np.array_equal(one.quantiles(SEEN), again.quantiles(SEEN))
    assert one.fall.runs == 1


def test_warm_up_and_the_end_of_the_cosine_are_left_out() -> None:
    fall = band(4).fall
    assert fall.from_tokens == (max(2 * OF.lr_warmup, 50) + 1) * OF.tokens_per_step
    # A cosine from 1 to 0.1 falls below four fifths before a third of the schedule.
    assert 250 < fall.to_tokens / OF.tokens_per_step < 350


def test_what_annealing_gains_is_not_taken_for_the_recipes_progress() -> None:
    """Annealing lowers the loss by a tenth of a nat at the end, in proportion to the fall of the
    rate. A law fitted until half of the peak covers the truth in half of the cases."""

    def annealed(seed: int) -> list[CurvePoint]:
        made = curve(OF, TRUE, seed=seed, level_sd=0.01, noise=0.1)
        peak = max(point.lr or 0.0 for point in made)
        gains = [0.1 * (1 - (p.lr or 0.0) / peak) * (p.step > OF.lr_warmup) for p in made]
        return [
            p.model_copy(update={"loss": p.loss - gain})
            for p, gain in zip(made, gains, strict=True)
        ]

    found = [
        fit_loss_law(
            [annealed(10 * seed), annealed(10 * seed + 1)],
            warmup=OF.lr_warmup,
            run_sd=0.01,
            seed=0,
        )
        for seed in range(12)
    ]
    assert np.mean([share_inside(band, BEYOND) for band in found]) > 0.9


def test_a_curve_too_short_for_a_law_is_refused() -> None:
    with pytest.raises(HandoffError, match="--steps"):
        fit_loss_law([curve(OF, TRUE, steps=25)], warmup=10, run_sd=0.01, seed=0)


T = np.geomspace(1e4, 1e6, 40)
EVEN = np.ones_like(T)


@given(
    floor=st.floats(0, 4),
    amplitude=st.floats(0.5, 10),
    exponent=st.floats(0.05, 1.5),
    unit=st.floats(1e-3, 1e6),
)
@example(floor=0.0, amplitude=1.0, exponent=1.49609375, unit=1.0)
@example(floor=0.0, amplitude=1.0, exponent=1.4609375, unit=1.0)
def test_a_law_without_noise_is_found_in_any_unit(
    floor: float, amplitude: float, exponent: float, unit: float
) -> None:
    loss = floor + amplitude * (T / T[0]) ** -exponent
    laws = fit_power_laws(T * unit, loss[None, :], EVEN)
    assert np.abs(laws.at(T * unit)[0] - loss).max() < 1e-4 * loss[0]
    assert laws.exponents[0] == pytest.approx(exponent, rel=1e-3)


@given(st.lists(st.floats(0.01, 100), min_size=5, max_size=40))
def test_neither_floor_nor_amplitude_is_ever_negative(losses: list[float]) -> None:
    t = np.geomspace(1, 100, len(losses))
    laws = fit_power_laws(t, np.array([losses]), np.ones_like(t))
    assert laws.floors[0] >= 0
    assert laws.amplitudes[0] >= 0
    assert np.isfinite(laws.at(t)).all()


def test_every_row_is_fitted_as_if_alone() -> None:
    rng = np.random.default_rng(0)
    losses = 2 + 3 * (T / T[0]) ** -0.4 + rng.normal(0, 0.05, (5, len(T)))
    together = fit_power_laws(T, losses, EVEN).at(T)
    for row, loss in enumerate(losses):
        assert np.allclose(together[row], fit_power_laws(T, loss[None, :], EVEN).at(T)[0])


def test_a_point_without_weight_does_not_count() -> None:
    loss = 2 + 3 * (T / T[0]) ** -0.4
    spoiled = loss.copy()
    spoiled[7] = 50.0
    weights = EVEN.copy()
    weights[7] = 1e-12
    assert np.allclose(fit_power_laws(T, spoiled[None, :], weights).at(T)[0], loss, rtol=2e-3)


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
    sizes = [(1e7, 0), (1e7, 1), (2e7, 0), (4e7, 0), (8e7, 0), (1.6e8, 0)]
    return [
        FinishedRun(
            params=n,
            tokens=20 * n,
            loss=float(CHINCHILLA.at(n, 20 * n)) * np.exp(rng.normal(0, noise)),
            seed=k,
        )
        for n, k in sizes
    ]


def inside(fit: ScalingFit, params: float, tokens: float, loss: float) -> bool:
    low, _, high = fit.predict(params, tokens)
    return bool(low <= loss <= high)


def test_many_runs_give_back_the_law_they_were_made_by() -> None:
    fit = fit_scaling_law(grid(0.003, 1), seed=0, replicates=200)
    assert fit.law.floor == pytest.approx(CHINCHILLA.floor, rel=0.04)
    assert fit.law.alpha == pytest.approx(CHINCHILLA.alpha, abs=0.04)
    assert fit.law.beta == pytest.approx(CHINCHILLA.beta, abs=0.04)
    assert fit.scatter == pytest.approx(0.003, rel=0.4)
    exponents = fit.exponents
    assert exponents.alpha_low < CHINCHILLA.alpha < exponents.alpha_high
    assert exponents.beta_low < CHINCHILLA.beta < exponents.beta_high


def test_one_ruined_run_does_not_move_the_law() -> None:
    runs = grid(0.002, 2)
    ruined = [runs[0].model_copy(update={"loss": 2 * runs[0].loss}), *runs[1:]]
    sound, spoilt = (fit_scaling_law(r, seed=0, replicates=50).law for r in (runs, ruined))
    assert float(spoilt.at(7e10, 1.4e12)) == pytest.approx(float(sound.at(7e10, 1.4e12)), rel=0.005)


def test_intervals_of_a_ladder_cover_what_they_say_and_widen_with_distance() -> None:
    true_rng = np.random.default_rng(3)
    near = far = 0
    trials = 40
    for seed in range(trials):
        fit = fit_scaling_law(rungs(0.004, seed), seed=seed, replicates=120)
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
    assert fit_scaling_law(runs, seed=7, replicates=20) == fit_scaling_law(
        runs, seed=7, replicates=20
    )


def test_too_few_runs_and_runs_of_one_size_are_refused() -> None:
    runs = rungs(0.004, 0)
    with pytest.raises(HandoffError):
        fit_scaling_law(runs[:4], seed=0)
    same = [FinishedRun(params=1e7, tokens=(1 + k / 10) * 1e8, loss=3.0) for k in range(6)]
    with pytest.raises(HandoffError):
        fit_scaling_law(same, seed=0)
