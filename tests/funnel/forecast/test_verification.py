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
from funnel.forecast.departures import LASTING, TOLERANCE, Departure, telling_point
from funnel.forecast.loss_law import fit_loss_law
from funnel.forecast.verification import verify
from tests.funnel.forecast.test_band import BAND, OF, both
from tests.support.present import known
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


def departure_of(bpb: np.ndarray, forecast: Forecast = FORECAST) -> Departure:
    """Return the departure of a broken run."""
    found = verify(log_of(bpb), forecast, BYTES)
    assert found.verdict == "broken"
    return known(found.departure)


WIDE = FORECAST.model_copy(
    update={
        "points": tuple(
            point.model_copy(update={"high_bpb": 10.0, "low_bpb": 0.01})
            for point in FORECAST.points
        )
    }
)


def test_a_run_as_forecast_is_within() -> None:
    found = verify(log_of(middle(0.03)), FORECAST, BYTES)
    assert (found.verdict, found.departure) == ("within", None)
    assert found.before + found.after + found.compared == found.points == 2000


@pytest.mark.parametrize(
    ("edge", "factor", "side"),
    [(2, 1.04, None), (2, 1.06, "above"), (0, 0.96, None), (0, 0.94, "below"), (1, 0.3, "below")],
)
def test_five_percent_is_measured_from_the_edge(edge: int, factor: float, side: str | None) -> None:
    found = verify(log_of(factor * FORECAST.at(TOKENS)[edge]), FORECAST, BYTES)
    assert found.verdict == ("broken" if side else "within")
    assert (found.departure and found.departure.side) == side


def test_a_diverging_run_is_told_since_its_step() -> None:
    bpb = middle(0.03)
    bpb[1200:] += np.linspace(0, 4, 800)
    found = departure_of(bpb)
    assert found.side in {"above", "rising"}
    out = int(np.argmax(bpb > 1.05 * FORECAST.at(TOKENS)[2] * 1.03))
    assert TOKENS[1200] <= found.tokens <= 1.05 * TOKENS[out]
    assert found.back_at_step is None
    back = middle(0.01)
    back[800:1100] += 3
    assert departure_of(back).back_at_step is not None


def test_a_run_that_rises_within_a_wide_band_is_told() -> None:
    bpb = middle(0.03)
    bpb[1200:] += np.linspace(0, 1, 800)
    found = departure_of(bpb, WIDE)
    assert found.side == "rising"
    assert 1200 * 9 < found.step < 1500 * 10
    flat = np.full(len(bpb), 2.0) * (1 + np.random.default_rng(3).normal(0, 0.05, len(bpb)))
    assert verify(log_of(flat), WIDE, BYTES).verdict == "too_wide"


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
    departure_of(stalled(FORECAST))
    departure_of(np.full(len(TOKENS), math.log(128_256) / math.log(2) / BYTES))  # never learned


def test_a_band_that_nothing_could_leave_confirms_nothing() -> None:
    wide = widened(1.01)
    for bpb in (middle(0.03), stalled(wide)):
        found = verify(log_of(bpb), wide, BYTES)
        assert found.verdict == "too_wide"
        assert found.departure is None
        assert found.telling_step is None
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
    rng = np.random.default_rng(4)
    tokens = TOKENS[200::6]
    verdicts = [
        verify(log_of(2 * (1 + rng.normal(0, 0.04, len(tokens))), tokens), WIDE, BYTES).verdict
        for _ in range(100)
    ]
    assert verdicts.count("broken") <= 2


@given(st.lists(st.integers(0, 1999), max_size=25, unique=True), st.floats(2, 100))
def test_single_points_however_high_are_no_departure(places: list[int], height: float) -> None:
    bpb = middle(0.02)
    # A median of about 33 points is robust to spikes that are not adjacent.
    spread = [place for place in sorted(places) if place % 8 == 0]
    bpb[spread] *= height
    assert verify(log_of(bpb), FORECAST, BYTES).verdict == "within"


def test_losses_that_are_not_finite_in_a_row_are_broken_and_one_is_not() -> None:
    bpb = middle(0.01)
    bpb[700] = math.nan
    found = verify(log_of(bpb), FORECAST, BYTES)
    assert found.verdict == "within"
    assert found.not_finite == 1
    bpb[900 : 900 + LASTING] = math.inf
    lost = departure_of(bpb)
    assert (lost.side, lost.step) == ("not finite", round(TOKENS[900] / OF.tokens_per_step))


def test_too_few_points_are_neither() -> None:
    late = TOKENS[:20] + 2 * TOKENS[-1]
    for tokens in (TOKENS[:8], late, TOKENS[:1]):
        found = verify(log_of(middle()[: len(tokens)], tokens), FORECAST, BYTES)
        assert found.verdict == "too_early"
    assert found.before == 1


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
    verdicts = []
    for seed in range(60):
        curves = [curve(OF, law(), seed=3 * seed + k, level_sd=0.01, noise=0.1) for k in (0, 1)]
        band = fit_loss_law(curves, warmup=10, run_sd=0.01, seed=seed)
        forecast = make_forecast(band, both(first_day_tokens=8_000_000))
        verdicts.append(verify(_same_model(forecast, seed), forecast, None).verdict)
    assert verdicts.count("within") >= 0.95 * len(verdicts)


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
