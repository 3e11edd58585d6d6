"""The detectors find every failure at its step and pass sound runs, however noisy the batches."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from funnel.stress.curve import Curve, noise_sd
from funnel.stress.detectors import divergence, gradient_blowup, judge_run, plateau, spikes
from tests.support.curves import Floats, judged, noisy, points, power_law
from tests.support.present import known
from trainer.schema import CommandOk, CurvePoint, TrialFailed
from trajectory.rows import StressVerdict

STEPS = 400
STEP = np.arange(1, STEPS + 1)
Shape: TypeAlias = Callable[[int], Floats]
Where: TypeAlias = Callable[[int], tuple[float, float]]
sigmas = st.floats(-3, -0.7).map(lambda exponent: 10**exponent)
seeds = st.integers(0, 10_000)
# These properties hold for nearly every curve, not for each, so no profile draws other cases.
# test_detector_rates.py measures how often a detector errs.


def ends(verdict: StressVerdict, outcome: str, first: float, last: float) -> None:
    """Check a verdict and that its step lies between two steps."""
    assert verdict.outcome == outcome
    assert first <= known(verdict.step) <= last


@pytest.mark.slow
@settings(max_examples=30, derandomize=True)
@given(
    st.sampled_from([100, 300, 1000]),
    st.floats(0.1, 0.5),
    st.floats(2, 8),
    st.floats(1, 4),
    st.floats(-3, -0.3),
    seeds,
    st.booleans(),
)
def test_sound_runs_survive_any_noise(
    steps: int,
    exponent: float,
    height: float,
    floor: float,
    log_sigma: float,
    seed: int,
    heavy_tailed: bool,
) -> None:
    shape = power_law(floor, height, exponent)
    loss = noisy(shape, steps, 10**log_sigma, seed=seed, heavy_tailed=heavy_tailed)
    norms = np.exp(np.random.default_rng(seed).normal(0, 0.4, steps))
    assert judged(points(loss, grad_norm=norms)).outcome == "survives"


@pytest.mark.slow
def test_false_alarms_are_rare_where_some_batches_are_much_harder() -> None:
    """Five in a hundred batches deviate by five times the noise of the others."""
    alarms = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        loss = noisy(power_law(), STEPS, 0.05, seed=seed)
        loss += np.where(rng.random(STEPS) < 0.05, 0.25, 0.0)
        alarms += judged(points(loss)).outcome != "survives"
    assert alarms <= 4


TROUBLE: dict[str, tuple[str, tuple[int, int], tuple[float, int], Shape, Where]] = {
    "a jump": (
        "diverges", (100, 320), (1.0, 8),
        lambda at: np.where(at <= STEP, 1.0, 0.0),
        lambda at: (at - 5, at + 5),
    ),
    "a slow climb": (
        "diverges", (80, 250), (1.5, 10),
        lambda at: np.clip((STEP - at) / (STEPS - at), 0, 1),
        lambda at: (at + 1, at + 0.6 * (STEPS - at)),
    ),
    "a short spike": (
        "spikes", (60, 300), (1.5, 10),
        lambda at: np.where(at <= STEP, np.exp(-(STEP - at) / 8), 0.0),
        lambda at: (at - 5, at + 5),
    ),
    "a long spike": (
        "spikes", (60, 300), (1.5, 10),
        lambda at: np.where(at <= STEP, np.exp(-(STEP - at) / 20), 0.0),
        lambda at: (at - 5, at + 5),
    ),
}  # fmt: skip
"""Outcome, steps where it may begin, least height in nats and in sigmas, shape, and the steps that
may be named."""


@pytest.mark.parametrize("kind", TROUBLE)
@settings(max_examples=15, derandomize=True)
@given(sigmas, seeds, st.floats(0, 1))
def test_trouble_is_found_where_it_begins(kind: str, sigma: float, seed: int, place: float) -> None:
    outcome, (first, last), (least, times), shape, within = TROUBLE[kind]
    at = round(first + place * (last - first))
    loss = noisy(power_law(), STEPS, sigma, seed=seed) + max(least, times * sigma) * shape(at)
    ends(judged(points(loss)), outcome, *within(at))


def test_every_spike_is_counted() -> None:
    loss = noisy(power_law(), STEPS, 0.02)
    for at in (100, 200, 300):
        loss[at - 1 : at + 9] += 2.0
    found = spikes(Curve(points(loss), steps=STEPS, warmup=10))
    assert [verdict.step for verdict in found] == pytest.approx([100, 200, 300], abs=1)


def test_one_hard_batch_is_no_spike() -> None:
    loss = noisy(power_law(), STEPS, 0.02)
    loss[199] += 3.0
    loss[201] += 3.0
    assert judged(points(loss)).outcome == "survives"


def test_the_settling_is_left_out() -> None:
    loss = noisy(power_law(), STEPS, 0.02)
    loss[4:14] += 6.0
    verdict = judged(points(loss), warmup=20)
    assert (verdict.outcome, verdict.step) == ("survives", None)


@settings(max_examples=15, derandomize=True)
@given(st.floats(-3, -1.7).map(lambda exponent: 10**exponent), seeds, st.floats(0.3, 0.6))
def test_a_loss_that_stops_falling_plateaus_there(sigma: float, seed: int, share: float) -> None:
    at = round(share * STEPS)
    shape = power_law(exponent=0.4)
    loss = noisy(lambda step: shape(np.minimum(step, at)), STEPS, sigma, seed=seed)
    ends(judged(points(loss)), "plateaus", at - 0.15 * STEPS, at + 0.1 * STEPS)


def test_a_run_that_never_learned_plateaus_from_the_start() -> None:
    verdict = judged(points(noisy(lambda step: np.full_like(step, 10.8), STEPS, 0.02)))
    assert (verdict.outcome, verdict.step) == ("plateaus", 40)


def test_flat_at_last_or_hidden_by_noise_is_no_plateau() -> None:
    shape = power_law(exponent=0.4)
    late = noisy(lambda step: shape(np.minimum(step, 0.9 * STEPS)), STEPS, 0.005)
    hidden = noisy(lambda step: shape(np.minimum(step, 0.5 * STEPS)), STEPS, 0.8)
    cooled = noisy(lambda s: 4.0 - 0.5 * np.clip(s / STEPS - 0.8, 0, None), STEPS, 0.005)
    for loss in (late, hidden, cooled):
        assert plateau(Curve(points(loss), steps=STEPS, warmup=10)) is None


@settings(max_examples=15, derandomize=True)
@given(seeds, st.integers(100, 250), st.floats(25, 1e4))
def test_a_gradient_norm_that_grows_for_good_blows_up(seed: int, at: int, factor: float) -> None:
    step = np.arange(1, STEPS + 1)
    growth = factor ** np.clip((step - at) / 60, 0, 1)
    norms = np.exp(np.random.default_rng(seed).normal(0, 0.4, STEPS)) * growth
    verdict = judged(points(noisy(power_law(), STEPS, 0.05, seed=seed), grad_norm=norms))
    ends(verdict, "grad_blowup", at + 1, at + 75)


def test_a_gradient_norm_that_comes_back_does_not() -> None:
    norms = np.ones(STEPS)
    norms[150:200] = 1000.0
    curve = Curve(points(noisy(power_law(), STEPS, 0.05), grad_norm=norms), steps=STEPS, warmup=10)
    assert gradient_blowup(curve) is None


@pytest.mark.parametrize("every", [5, 10])
def test_sparse_curves_are_judged_too(every: int) -> None:
    sound = noisy(power_law(), 1000, 0.05)
    risen = sound + np.where(np.arange(1000) >= 600, 2.0, 0.0)
    assert judged(points(sound, every=every)).outcome == "survives"
    ends(judged(points(risen, every=every)), "diverges", 600 - 3 * every, 600 + 3 * every)


def test_the_noise_is_the_batches_whatever_the_trend_and_the_trouble() -> None:
    loss = noisy(power_law(), STEPS, 0.05)
    assert noise_sd(loss[20:], 21) == pytest.approx(0.05, rel=0.15)
    rng = np.random.default_rng(0)
    loss[300:] += 50 * rng.random(100)
    assert noise_sd(loss[20:], 21) == pytest.approx(0.05, rel=0.2)


def test_trouble_from_the_first_step_is_not_taken_for_noise() -> None:
    rng = np.random.default_rng(0)
    loss = np.concatenate([[5.5], 1000 * rng.random(STEPS - 1)])
    found = divergence(Curve(points(loss), steps=STEPS, warmup=10))
    assert known(known(found).step) <= 10


def test_a_loss_that_lost_its_numbers_is_nonfinite_at_that_step() -> None:
    curve = points(noisy(power_law(), 57, 0.05))
    for steps_done in (57, None):
        result = TrialFailed(status="nonfinite", message="the loss was nan", steps=steps_done)
        verdict = judged(curve, result, steps=STEPS)
        assert (verdict.outcome, verdict.step) == ("nonfinite", 58)


def test_a_run_cut_short_fails_unless_its_curve_says_worse() -> None:
    timeout = TrialFailed(status="timeout", message="over its 300 s")
    sound = noisy(power_law(), 200, 0.05)
    verdict = judged(points(sound), timeout, steps=STEPS)
    assert (verdict.outcome, verdict.step) == ("failed", 201)
    sound[150:] += 3.0
    assert judged(points(sound), timeout, steps=STEPS).outcome == "diverges"


def test_nothing_is_said_of_a_curve_that_is_not_there() -> None:
    assert judged(points([5.0, 4.9, 4.8])).outcome == "failed"
    with pytest.raises(ValueError, match="3 points"):
        Curve(points([5.0, 4.9, 4.8]), steps=3, warmup=0)


@pytest.mark.parametrize(
    ("printed", "ended_elsewhere"),
    [
        (range(0, 201, 10), False),
        (range(0, 200, 30), False),
        (range(200), False),
        (range(0, 61, 10), True),
        (range(0, 401, 10), True),
        (range(0), False),
    ],
)
def test_a_script_that_ignores_its_length_fails(printed: range, ended_elsewhere: bool) -> None:
    curve = [CurvePoint(step=step, loss=2 - step / 1000, elapsed_s=1.0) for step in printed]
    result = CommandOk(
        score=1.0, direction="minimise", steps=None, train_s=1.0, setup_s=0.1, peak_mem_gib=0.1
    )
    verdict = judge_run(curve, result, steps=200, warmup=0)
    assert (verdict.outcome == "failed") is ended_elsewhere
