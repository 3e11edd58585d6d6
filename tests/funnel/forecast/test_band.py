import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch.errors import HandoffError
from funnel.forecast.band import Forecast, make_forecast, read_forecast
from funnel.forecast.both_runs import PlannedRuns, Text
from funnel.forecast.loss_law import fit_loss_law
from tests.support.configs import config
from tests.support.stressed import curve, law

OF = config()
BAND = fit_loss_law([curve(OF, law(), seed=s) for s in (1, 2)], warmup=10, run_sd=0.01, seed=0)


def both(**changes: Any) -> PlannedRuns:
    text = Text(tokenizer="bpe:1024", vocab_size=1024, bytes_per_token=2.5)
    values: dict[str, Any] = {
        "target": "llama-7b", "corpus": "stdlib", "proxy_text": text,
        "target_text": text.model_copy(update={"bytes_per_token": None}),
        "proxy_params": 1_000_000, "target_params": 1_000_000,
        "proxy_tokens_per_step": OF.tokens_per_step, "tokens_per_step": OF.tokens_per_step,
        "seq_len": 128, "warmup_steps": 10, "first_day_tokens": 2_000_000, "total_tokens": 10**9,
    }  # fmt: skip
    return PlannedRuns(**values | changes)


def at(forecast: Forecast, tokens: float) -> tuple[float, float, float]:
    low, middle, high = forecast.at(np.array([tokens]))
    return float(low[0]), float(middle[0]), float(high[0])


def test_the_same_model_is_forecast_to_do_the_same_in_bits_per_byte() -> None:
    forecast = make_forecast(BAND, both())
    for tokens in (1e5, 3e5, 5e5):
        low, middle, high = at(forecast, tokens)
        truth = law()(tokens) / math.log(2) / 2.5
        assert low < truth < high
        assert middle == pytest.approx(truth, rel=0.02)
    assert forecast.size_factor == 1
    assert forecast.bytes_per_token == 2.5


def test_a_larger_model_lowers_the_low_edge_alone() -> None:
    same, larger = make_forecast(BAND, both()), make_forecast(BAND, both(target_params=10**9))
    assert larger.size_factor == pytest.approx(1000**-0.076)
    low, middle, high = at(same, 3e5)
    low_l, middle_l, high_l = at(larger, 3e5)
    assert low_l == pytest.approx(low * 1000**-0.076)
    assert middle_l == pytest.approx(middle * 1000**-0.038)
    assert high_l == high
    assert make_forecast(BAND, both(target_params=1000)).size_factor == 1


def test_a_larger_batch_lies_between_equal_tokens_and_equal_steps() -> None:
    tokens_per_step = 8 * OF.tokens_per_step
    forecast = make_forecast(BAND, both(tokens_per_step=tokens_per_step))
    tokens = forecast.points[40].tokens
    low, _, high = at(forecast, tokens)
    at_tokens = BAND.quantiles(np.array([float(tokens)]))
    at_steps = BAND.quantiles(np.array([tokens / 8]))
    per_byte = math.log(2) * 2.5
    assert low == pytest.approx(at_tokens[0][0] / per_byte, rel=1e-3)
    assert high == pytest.approx(at_steps[2][0] / per_byte, rel=1e-2)
    assert high > at_tokens[2][0] / per_byte


def test_through_a_long_warm_up_the_high_edge_counts_learning_rates() -> None:
    short, long = make_forecast(BAND, both()), make_forecast(BAND, both(warmup_steps=900))
    step = 600
    tokens = float(step * OF.tokens_per_step)
    assert long.points[0].tokens < tokens
    progress = step**2 / (2 * 900)
    _, _, high = BAND.quantiles(np.array([progress * OF.tokens_per_step]))
    assert at(long, tokens)[2] == pytest.approx(high[0] / math.log(2) / 2.5, rel=5e-3)
    assert at(long, tokens)[0] == pytest.approx(at(short, tokens)[0], rel=5e-3)
    # Far beyond the warm-up its effect has vanished.
    assert at(long, 1.9e6)[2] == pytest.approx(at(short, 1.9e6)[2], rel=0.03)


@given(
    warmup=st.integers(0, 10**6),
    proxy=st.integers(1, 10**6),
    own=st.integers(1, 10**8),
    day=st.integers(10**6, 10**11),
)
@settings(max_examples=15)
def test_the_band_is_in_order_and_its_high_edge_never_rises(
    warmup: int, proxy: int, own: int, day: int
) -> None:
    points = make_forecast(
        BAND,
        both(
            warmup_steps=warmup,
            proxy_tokens_per_step=proxy,
            tokens_per_step=own,
            first_day_tokens=day,
            total_tokens=10**22,
        ),
    ).points
    assert all(0 < point.low_bpb <= point.middle_bpb <= point.high_bpb for point in points)
    high = [point.high_bpb for point in points]
    assert high == sorted(high, reverse=True)


def test_the_first_day_is_covered_and_outlasted_where_the_plunge_is_longer() -> None:
    day = 20_000_000
    forecast = make_forecast(BAND, both(warmup_steps=40_000, first_day_tokens=day))
    assert 40_000 * OF.tokens_per_step > day
    assert forecast.points[0].tokens < day / 4
    assert forecast.points[-1].tokens == day
    brief = make_forecast(BAND, both(first_day_tokens=60_000))
    assert brief.points[-1].tokens > brief.first_day_tokens


def test_a_run_that_ends_before_a_forecast_begins_is_refused() -> None:
    with pytest.raises(HandoffError, match="token_budget"):
        make_forecast(BAND, both(total_tokens=20_000))


def test_another_vocabulary_without_its_bytes_a_token_is_unknown() -> None:
    other = Text(tokenizer="the cloud's", vocab_size=128_256, bytes_per_token=None)
    assert make_forecast(BAND, both(target_text=other)).bytes_per_token is None
    told = other.model_copy(update={"bytes_per_token": 4.4})
    assert make_forecast(BAND, both(target_text=told)).bytes_per_token == 4.4


def test_it_comes_back_from_its_file_and_csv_holds_its_points(tmp_path: Path) -> None:
    forecast = make_forecast(BAND, both())
    path = tmp_path / "forecast.json"
    path.write_text(forecast.model_dump_json())
    assert read_forecast(path) == forecast
    milestones = forecast.milestones
    assert (milestones[0], milestones[-1]) == (forecast.points[0], forecast.points[-1])
    assert len(milestones) == 9
    lines = list(csv.DictReader(forecast.to_csv().splitlines()))
    assert [int(line["tokens"]) for line in lines] == [p.tokens for p in forecast.points]
    assert float(lines[3]["low_bpb"]) == pytest.approx(forecast.points[3].low_bpb, rel=1e-5)


@pytest.mark.parametrize("content", ["", "{}", '{"points": []}', "not json"])
def test_a_file_that_is_no_forecast_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "forecast.json"
    path.write_text(content)
    with pytest.raises(HandoffError):
        read_forecast(path)
    with pytest.raises(HandoffError):
        read_forecast(tmp_path / "none.json")
