from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import HandoffError
from funnel.forecast.band import Forecast, make_forecast
from funnel.forecast.both_runs import Text
from funnel.forecast.cloud_log import CloudLog, CloudPoint
from funnel.forecast.departures import LASTING, TOLERANCE, telling_point
from funnel.forecast.loss_law import fit_loss_law
from funnel.forecast.verification import verify
from tests.funnel.forecast.test_band import BAND, OF, both
from tests.support.stressed import curve, law

BYTES = 4.4
OTHER = Text(tokenizer="the cloud's", vocab_size=128_256, bytes_per_token=None)
FORECAST = make_forecast(
    BAND, both(target_params=10**8, target_text=OTHER, first_day_tokens=20_000_000)
)
TOKENS = np.linspace(OF.tokens_per_step, FORECAST.points[-1].tokens, 2000).round()


def log_of(bpb: np.ndarray, tokens: np.ndarray = TOKENS, **changes: Any) -> CloudLog:
    """Return a cloud log with these bits per byte, converted to nats per token."""
    points = tuple(
        CloudPoint(step=round(t / OF.tokens_per_step), tokens=int(t), loss=float(loss))
        for t, loss in zip(tokens, bpb * math.log(2) * BYTES, strict=True)
    )
    values: dict[str, Any] = {"points": points, "unit": "nats_per_token", "repeated": 0}
    return CloudLog(**values | changes)


def middle(noise: float = 0.0, seed: int = 0) -> np.ndarray:
    _, bpb, _ = FORECAST.at(TOKENS)
    noisy: np.ndarray = bpb * (1 + np.random.default_rng(seed).normal(0, noise, len(bpb)))
    return noisy


def test_a_run_as_forecast_is_within() -> None:
    found = verify(log_of(middle(0.03)), FORECAST, BYTES)
    assert found.verdict == "within"
    assert found.departure is None
    assert "within 5% of the forecast up to step" in found.sentence
    assert found.before + found.after + found.compared == found.points == 2000


def test_a_band_too_wide_to_say_much_is_told_with_the_verdict() -> None:
    def down_to(share: float) -> Forecast:
        points = tuple(
            point.model_copy(update={"low_bpb": point.high_bpb * share})
            for point in FORECAST.points
        )
        return FORECAST.model_copy(update={"points": points})

    assert "says little" not in verify(log_of(middle()), down_to(1 / 1.9), BYTES).sentence
    wide = down_to(1 / 4)
    assert "4 times its low one, so that this says little" in (
        verify(log_of(middle()), wide, BYTES).sentence
    )


def test_a_diverging_run_is_told_since_its_step() -> None:
    bpb = middle(0.03)
    bpb[1200:] += np.linspace(0, 4, 800)
    found = verify(log_of(bpb), FORECAST, BYTES)
    assert found.verdict == "broken"
    assert found.departure is not None
    assert found.departure.side in {"above", "rising"}
    _, _, high = FORECAST.at(TOKENS)
    out = int(np.argmax(bpb > 1.05 * high * 1.03))
    assert TOKENS[1200] <= found.departure.tokens <= 1.05 * TOKENS[out]
    assert found.departure.back_at_step is None


def test_a_run_that_rises_within_a_wide_band_is_told() -> None:
    wide = FORECAST.model_copy(
        update={
            "points": tuple(
                point.model_copy(update={"high_bpb": 10.0, "low_bpb": 0.01})
                for point in FORECAST.points
            )
        }
    )
    bpb = middle(0.03)
    bpb[1200:] += np.linspace(0, 1, 800)
    found = verify(log_of(bpb), wide, BYTES)
    assert found.departure is not None
    assert found.departure.side == "rising"
    assert 1200 * 9 < found.departure.step < 1500 * 10
    flat = np.full(len(bpb), 2.0) * (1 + np.random.default_rng(3).normal(0, 0.05, len(bpb)))
    assert verify(log_of(flat), wide, BYTES).verdict == "too_wide"


def stalled(forecast: Forecast) -> np.ndarray:
    noise = np.random.default_rng(5).normal(0, 0.03, len(TOKENS))
    return np.full(len(TOKENS), forecast.points[0].middle_bpb) * (1 + noise)


def widened(factor: float) -> Forecast:
    """Return FORECAST with its high edge at ``factor`` times the level that detects a stalled
    run."""
    edge = factor * FORECAST.points[0].middle_bpb / (1 + TOLERANCE)
    points = tuple(
        point.model_copy(update={"high_bpb": max(point.high_bpb, edge)})
        for point in FORECAST.points
    )
    return FORECAST.model_copy(update={"points": points})


def test_where_a_run_is_within_one_that_stopped_learning_is_broken() -> None:
    assert verify(log_of(middle(0.03)), widened(0.9), BYTES).verdict == "within"
    assert verify(log_of(stalled(FORECAST)), FORECAST, BYTES).verdict == "broken"


def test_a_band_that_nothing_could_leave_confirms_nothing() -> None:
    wide = widened(1.01)
    for bpb in (middle(0.03), stalled(wide)):
        found = verify(log_of(bpb), wide, BYTES)
        assert found.verdict == "too_wide"
        assert found.departure is None
        assert found.telling_step is None
        assert f"at {wide.points[0].middle_bpb:.4f}" in found.sentence
        assert "within" not in found.sentence
    assert telling_point(widened(0.99)) is not None


def test_a_log_that_ends_before_the_band_tells_is_too_early() -> None:
    telling = telling_point(FORECAST)
    assert telling is not None
    assert FORECAST.points[0].tokens < telling.tokens < FORECAST.points[-1].tokens
    tokens = np.linspace(FORECAST.points[0].tokens, 2 * telling.tokens, 400).round()
    bpb = FORECAST.at(tokens)[1]
    short = tokens <= 0.95 * telling.tokens
    early = verify(log_of(bpb[short], tokens[short]), FORECAST, BYTES)
    assert early.verdict == "too_early"
    assert early.telling_step == telling.step
    assert verify(log_of(bpb, tokens), FORECAST, BYTES).verdict == "within"


def test_a_flat_noisy_run_of_few_points_seldom_seems_to_rise() -> None:
    wide = FORECAST.model_copy(
        update={
            "points": tuple(
                point.model_copy(update={"high_bpb": 10.0, "low_bpb": 0.01})
                for point in FORECAST.points
            )
        }
    )
    rng = np.random.default_rng(4)
    tokens = TOKENS[200::6]
    verdicts = [
        verify(log_of(2 * (1 + rng.normal(0, 0.04, len(tokens))), tokens), wide, BYTES).verdict
        for _ in range(100)
    ]
    assert verdicts.count("broken") <= 2


def test_a_run_that_never_learns_is_broken() -> None:
    stuck = np.full(len(TOKENS), math.log(128_256) / math.log(2) / BYTES)
    assert verify(log_of(stuck), FORECAST, BYTES).verdict == "broken"


def test_a_loss_too_good_to_be_true_is_broken() -> None:
    found = verify(log_of(0.3 * middle(0.02)), FORECAST, BYTES)
    assert found.departure is not None
    assert found.departure.side == "below"
    assert found.departure.worst is not None
    assert found.departure.worst < 0


@given(st.lists(st.integers(0, 1999), max_size=25, unique=True), st.floats(2, 100))
def test_single_points_however_high_are_no_departure(places: list[int], height: float) -> None:
    bpb = middle(0.02)
    # A median of about 33 points is robust to spikes that are not adjacent.
    spread = [place for place in sorted(places) if place % 8 == 0]
    bpb[spread] *= height
    assert verify(log_of(bpb), FORECAST, BYTES).verdict == "within"


def test_a_departure_that_came_back_says_where() -> None:
    bpb = middle(0.01)
    bpb[800:1100] += 3
    found = verify(log_of(bpb), FORECAST, BYTES)
    assert found.verdict == "broken"
    assert found.departure is not None
    assert found.departure.back_at_step is not None


def test_losses_that_are_not_finite_in_a_row_are_broken_and_one_is_not() -> None:
    bpb = middle(0.01)
    bpb[700] = math.nan
    found = verify(log_of(bpb), FORECAST, BYTES)
    assert found.verdict == "within"
    assert found.not_finite == 1
    bpb[900 : 900 + LASTING] = math.inf
    found = verify(log_of(bpb), FORECAST, BYTES)
    assert found.verdict == "broken"
    assert found.departure is not None
    assert found.departure.side == "not finite"
    assert found.departure.step == round(TOKENS[900] / OF.tokens_per_step)


def test_too_few_points_are_neither() -> None:
    few = TOKENS[:8]
    found = verify(log_of(middle()[:8], few), FORECAST, BYTES)
    assert found.verdict == "too_early"
    late = verify(log_of(middle()[:20], TOKENS[:20] + 2 * TOKENS[-1]), FORECAST, BYTES)
    assert late.verdict == "too_early"
    early = verify(log_of(middle()[:1], TOKENS[:1]), FORECAST, BYTES)
    assert early.before == 1
    assert early.verdict == "too_early"


def test_five_percent_is_measured_from_the_edge() -> None:
    _, _, high = FORECAST.at(TOKENS)
    assert verify(log_of(1.04 * high), FORECAST, BYTES).verdict == "within"
    assert verify(log_of(1.06 * high), FORECAST, BYTES).verdict == "broken"
    low, _, _ = FORECAST.at(TOKENS)
    assert verify(log_of(0.96 * low), FORECAST, BYTES).verdict == "within"
    assert verify(log_of(0.94 * low), FORECAST, BYTES).verdict == "broken"


def test_another_tokenizer_must_be_told() -> None:
    with pytest.raises(HandoffError, match="--bytes-per-token"):
        verify(log_of(middle()), FORECAST, None)
    in_bpb = log_of(middle() / math.log(2) / BYTES, unit="bits_per_byte")
    assert verify(in_bpb, FORECAST, None).verdict == "within"
    same = FORECAST.model_copy(update={"target_text": FORECAST.proxy_text})
    assert verify(log_of(middle() * 2.5 / BYTES), same, None).bytes_per_token == 2.5


@pytest.mark.slow
def test_false_alarms_are_rare() -> None:
    """Proxy and cloud run are drawn from one law, each with its own level and noise."""
    alarms = 0
    trials = 60
    for seed in range(trials):
        curves = [curve(OF, law(), seed=3 * seed + k, level_sd=0.01, noise=0.1) for k in (0, 1)]
        forecast = make_forecast(
            fit_loss_law(curves, warmup=10, run_sd=0.01, seed=seed),
            both(first_day_tokens=8_000_000),
        )
        alarms += verify(_same_model(forecast, seed), forecast, None).verdict != "within"
    assert alarms <= 0.05 * trials


def _same_model(forecast: Forecast, seed: int) -> CloudLog:
    rng = np.random.default_rng(seed)
    tokens = np.linspace(forecast.points[0].tokens, forecast.points[-1].tokens, 600).round()
    level = math.exp(rng.normal(0, 0.01))
    losses = [law()(t) * level + rng.normal(0, 0.05) for t in tokens]
    points = tuple(
        CloudPoint(step=None, tokens=int(t), loss=loss)
        for t, loss in zip(tokens, losses, strict=True)
    )
    return CloudLog(points, "nats_per_token", 0)
