"""A ladder's forecast covers a near target's run, detects departures and is worthless for a far
target."""

from functools import cache

import numpy as np
import pytest

from funnel.forecast.band import Forecast
from funnel.forecast.cloud_log import CloudLog
from funnel.forecast.departures import telling_point
from funnel.forecast.ladder.forecast import make_ladder_forecast
from funnel.forecast.ladder.rung_runs import ScheduleShape
from funnel.forecast.ladder.words import power_lines
from funnel.forecast.verification import verify
from tests.support.present import known
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


def test_a_near_target_is_foretold_and_its_run_is_within() -> None:
    forecast = forecast_of(NEAR)
    basis = known(forecast.ladder)
    assert basis.is_usable
    assert basis.end_middle_bpb == pytest.approx(NEAR.end_bpb(), rel=0.015)
    assert basis.end_low_bpb <= NEAR.end_bpb() <= basis.end_high_bpb
    found = verify(NEAR.log("sound", 0), forecast, None)
    assert found.verdict == "within"
    assert {"x1.05", "stop0.05", "stop0.50"} <= {c.name for c in found.caught if c.by_tokens}


@pytest.mark.parametrize("kind", ["x1.05", "x1.40", "stop 5 %", "stop 50 %"])
def test_what_the_plan_says_is_caught_is_caught_by_then(kind: str) -> None:
    forecast = forecast_of(NEAR)
    found = verify(NEAR.log(kind, 1), forecast, None)
    assert found.verdict == "broken"
    name = kind if kind.startswith("x") else f"stop{float(kind.split()[1]) / 100:.2f}"
    catch = next(catch for catch in known(forecast.ladder).caught if catch.name == name)
    said = known(catch.by_tokens) / forecast.tokens_per_step
    assert known(known(found.departure).seen_at_step) <= 1.3 * said


def test_a_spike_that_recovers_is_no_departure() -> None:
    assert verify(NEAR.log("spikes", 2), forecast_of(NEAR), None).departure is None


def test_nothing_is_confirmed_before_it_would_have_been_caught() -> None:
    forecast, log = forecast_of(NEAR), NEAR.log("sound", 3)
    last = 0.06 * log.points[-1].tokens
    early = CloudLog(tuple(p for p in log.points if p.tokens <= last), log.unit, log.repeated)
    assert early.points[-1].tokens < known(telling_point(forecast)).tokens
    assert verify(early, forecast, None).verdict == "too_early"


def test_a_far_target_makes_the_forecast_worthless_and_says_what_would_not() -> None:
    forecast = forecast_of(FAR)
    basis = known(forecast.ladder)
    assert not basis.is_usable
    assert telling_point(forecast) is None
    (_line,) = power_lines(basis, forecast)
    found = verify(FAR.log("sound", 0), forecast, None)
    assert found.verdict == "too_wide"
    assert found.departure is None


def test_a_forecast_is_the_same_again_from_its_file() -> None:
    forecast = forecast_of(NEAR)
    assert Forecast.model_validate_json(forecast.model_dump_json()) == forecast


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
