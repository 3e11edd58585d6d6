"""A ladder's forecast covers a near target's run, detects departures and is worthless for a far
target."""

import csv
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from autoresearch.errors import HandoffError
from funnel.forecast.band import Forecast, Text, read_forecast
from funnel.forecast.faults import power_lines
from funnel.forecast.from_ladder import make_ladder_forecast
from funnel.forecast.rung_runs import ScheduleShape
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
    both, schedule = world.target()
    return make_ladder_forecast(world.ladder(), both, schedule, seed=1)


def test_the_interval_of_a_near_targets_end_covers_it() -> None:
    basis = forecast_of(NEAR).ladder
    assert basis.is_usable
    assert basis.end_middle_bpb == pytest.approx(NEAR.end_bpb(), rel=0.015)
    assert basis.end_low_bpb <= NEAR.end_bpb() <= basis.end_high_bpb


def test_a_far_target_makes_the_forecast_worthless() -> None:
    forecast = forecast_of(FAR)
    assert not forecast.ladder.is_usable
    assert forecast.telling_point is None
    assert len(list(power_lines(forecast))) == 1


def test_a_forecast_is_the_same_again_from_its_file_and_from_an_older_one(tmp_path: Path) -> None:
    forecast = forecast_of(NEAR)
    path = tmp_path / "forecast.json"
    values = json.loads(forecast.model_dump_json())
    values |= {"fall": None, "size_factor": None, "proxy_params": 1000}
    values["ladder"]["narrowing"] = ""
    path.write_text(json.dumps(values))
    assert read_forecast(path) == forecast
    lines = list(csv.DictReader(forecast.to_csv().splitlines()))
    assert [int(line["tokens"]) for line in lines] == [p.tokens for p in forecast.points]
    assert float(lines[3]["low_bpb"]) == pytest.approx(forecast.points[3].low_bpb, rel=1e-5)
    assert len(forecast.milestones) == 9
    path.write_text(json.dumps(values | {"ladder": None}))
    with pytest.raises(HandoffError):
        read_forecast(path)


def test_another_vocabulary_without_its_bytes_per_token_is_unknown() -> None:
    other = Text(tokenizer="the cloud's", vocab_size=128_256, bytes_per_token=None)
    forecast = forecast_of(NEAR)
    assert forecast.model_copy(update={"target_text": other}).bytes_per_token is None
    stated = other.model_copy(update={"bytes_per_token": 4.4})
    assert forecast.model_copy(update={"target_text": stated}).bytes_per_token == 4.4


def test_what_a_schedule_gains_by_its_falls() -> None:
    flat = ScheduleShape(steps=1000, warmup_steps=0, kind="wsd", decay_share=0.2)
    gained = flat.annealed(1000.0)
    share = np.linspace(0, 1, len(gained))
    assert np.abs(gained[share < 0.79]).max() < 1e-9
    assert 0.75 < gained[-1] <= 1
    assert flat.annealed(3.0)[-1] < gained[-1]
    assert flat.annealed(3.0, by_sums=False)[-1] < flat.annealed(300.0, by_sums=False)[-1]
    half = ScheduleShape(steps=1000, warmup_steps=0, kind="linear", lr_min_ratio=0.5)
    assert half.sums()[-1] == pytest.approx(0.75, rel=1e-3)
    assert half.progress()[-1] == 1
