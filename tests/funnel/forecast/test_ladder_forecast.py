"""A ladder's forecast covers a near target's run, detects departures and is worthless for a far
target."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from autoresearch.errors import HandoffError
from funnel.forecast.band import Forecast, make_forecast, read_run
from funnel.forecast.schedule import ScheduleShape
from tests.support.verify_worlds import World

NEAR = World(
    seed=17, end="coupled", is_momentum=True, luck=0.001, wander=0.0005, noise=0.01,
    correlation=0.3, rungs=6, leap=2.0, kind="wsd",
)  # fmt: skip
FAR = World(
    seed=18, end="besiroglu", is_momentum=False, luck=0.003, wander=0.001, noise=0.02,
    correlation=0.5, rungs=5, leap=600.0, kind="cosine",
)  # fmt: skip


@cache
def forecast_of(world: World) -> Forecast:
    return make_forecast(world.ladder(), world.target(), seed=1)


def test_the_interval_of_a_near_targets_end_covers_it() -> None:
    forecast = forecast_of(NEAR)
    assert forecast.telling_point is not None
    end = forecast.points[-1]
    assert end.middle_bpb == pytest.approx(NEAR.end_bpb(), rel=0.015)
    assert end.low_bpb <= NEAR.end_bpb() <= end.high_bpb


def test_a_far_target_and_a_missed_prediction_make_the_forecast_worthless() -> None:
    assert forecast_of(FAR).telling_point is None
    assert forecast_of(FAR).ladder.doublings > 18
    near = forecast_of(NEAR)
    missed = near.ladder.model_copy(update={"missed": -0.03})
    assert near.model_copy(update={"ladder": missed}).telling_point is None


def test_a_forecast_is_the_same_again_from_its_file_and_an_older_one_is_refused(
    tmp_path: Path,
) -> None:
    forecast = forecast_of(NEAR)
    path = tmp_path / "forecast.json"
    path.write_text(forecast.model_dump_json())
    assert read_run(path) == forecast
    older = json.loads(forecast.model_dump_json())
    del older["schedule"]
    path.write_text(json.dumps(older))
    with pytest.raises(HandoffError):
        read_run(path)


def test_what_a_schedule_gains_by_its_falls() -> None:
    share = np.linspace(0, 1, 101)
    flat = ScheduleShape(steps=100_000, warmup_steps=0, kind="wsd", decay_share=0.2)
    progress, left = flat.features(share)
    assert np.ptp(left[share < 0.79]) < 1e-9
    assert 0.9 < left[0] <= 1
    assert progress[-1] == 1
    short = ScheduleShape(steps=300, warmup_steps=0, kind="wsd", decay_share=0.2)
    assert short.features(share)[1][0] < left[0] / 5, "in 300 steps a gain has hardly settled"
    half = ScheduleShape(steps=1000, warmup_steps=0, kind="linear", lr_min_ratio=0.5)
    assert half.rates()[[0, -1]] == pytest.approx([1.0, 0.5])
