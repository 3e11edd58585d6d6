"""``verify`` asks whether a run learns, is stable, and is where it should be."""

import math
from dataclasses import replace

import numpy as np
import pytest

from funnel.forecast.cloud_log import CloudLog, CloudPoint
from funnel.forecast.schedule import ScheduleShape
from funnel.forecast.verification import LASTING, AnsweredQuestion, Verification, verify
from tests.funnel.forecast.test_ladder_forecast import FAR, NEAR, forecast_of
from tests.support.present import known

FORECAST = forecast_of(NEAR)
RUN = NEAR.target()
LOG = NEAR.log("sound", 0)
STEPS = 111_393
CLOUD = RUN.model_copy(
    update={"schedule": ScheduleShape(steps=STEPS, warmup_steps=2000), "tokens_per_step": 1_441_792}
)
"""A run of 7 B, of which a day is four thousand steps."""


def compared(log: CloudLog) -> Verification:
    return verify(log, RUN, FORECAST)


def answers(found: Verification) -> dict[str, AnsweredQuestion]:
    return {one.question: one for one in found.answers}


def until(log: CloudLog, share: float) -> CloudLog:
    last = share * log.points[-1].tokens
    return replace(log, points=tuple(p for p in log.points if p.tokens <= last))


def with_losses(first: int, count: int, loss: float) -> CloudLog:
    """Return the sound run's log with some of its losses replaced."""
    points = list(LOG.points)
    for place in range(first, first + count):
        points[place] = replace(points[place], loss=loss)
    return replace(LOG, points=tuple(points))


def a_day(losses: np.ndarray, *, first: int = 10) -> CloudLog:
    """Return the log of a run's first day, a loss every ten steps, with noise."""
    noisy = losses * (1 + 0.01 * np.random.default_rng(1).standard_normal(len(losses)))
    points = (
        CloudPoint(step=step, tokens=step * CLOUD.tokens_per_step, loss=float(loss))
        for step, loss in zip(range(first, 10**7, 10), noisy, strict=False)
    )
    return CloudLog(tuple(points), "nats_per_token", 0)


STEP = np.arange(1.0, 401.0)
SOUND = 2.2 + 9.4 * STEP**-0.55


@pytest.mark.parametrize(
    ("losses", "question", "since"),
    [
        (np.full(400, 11.7), "learning", (0, 50)),
        (
            np.where(STEP < 250, SOUND, SOUND + (8.7 - 2.7) * (STEP - 250) / 150),
            "stable",
            (2400, 3000),
        ),
        (np.where(STEP < 100, SOUND, SOUND[100]), "learning", (500, 1600)),
    ],
    ids=["never learns", "diverges from 2.7 to 8.7", "stops"],
)
def test_a_failing_first_day_is_broken_without_a_forecast(
    losses: np.ndarray, question: str, since: tuple[int, int]
) -> None:
    for forecast in (None, forecast_of(FAR)):
        found = verify(a_day(losses), CLOUD, forecast)
        assert found.verdict == "broken"
        answer = answers(found)[question]
        assert answer.answer == "no"
        assert since[0] <= known(answer.step) <= since[1]


def test_a_healthy_first_day_is_not_broken() -> None:
    found = verify(a_day(SOUND), CLOUD, None)
    assert found.verdict == "no_band"
    assert [one.answer for one in found.answers] == ["yes", "yes", "unknown"]
    resumed = verify(a_day(2.3 - STEP / 4000, first=60_000), CLOUD, None)
    assert resumed.verdict == "no_band", (
        "a log that begins late need not fall from the start's loss"
    )


def test_a_sound_run_is_within_once_the_band_can_tell() -> None:
    found = compared(LOG)
    assert found.verdict == "within"
    assert {one.answer for one in found.answers} == {"yes"}


@pytest.mark.parametrize("kind", ["x1.05", "x1.40", "stop 5 %", "stop 50 %", "drift"])
def test_faults_are_found(kind: str) -> None:
    found = compared(NEAR.log(kind, 1))
    assert found.verdict == "broken"


def test_a_spike_that_recovers_is_no_departure() -> None:
    assert compared(NEAR.log("spikes", 2)).verdict == "within"


def test_losses_that_are_not_finite_in_a_row_are_broken_and_one_is_not() -> None:
    assert compared(with_losses(700, 1, math.nan)).verdict == "within"
    lost = compared(with_losses(900, LASTING, math.inf))
    assert lost.verdict == "broken"
    assert answers(lost)["stable"].step == LOG.points[900].step


@pytest.mark.parametrize("share", [0.03, 0.001])
def test_nothing_is_confirmed_before_the_band_can_tell(share: float) -> None:
    early = until(LOG, share)
    assert early.points[-1].tokens < known(FORECAST.telling_point).tokens
    assert compared(early).verdict == "too_early"


def test_a_worthless_forecast_and_a_missed_prediction_confirm_nothing() -> None:
    found = verify(FAR.log("sound", 0), FAR.target(), forecast_of(FAR))
    assert found.verdict == "no_band"
    missed = FORECAST.ladder.model_copy(update={"missed": 0.04})
    unsure = FORECAST.model_copy(update={"ladder": missed})
    for kind in ("sound", "x1.10"):
        assert verify(NEAR.log(kind, 1), RUN, unsure).verdict == "no_band"


def test_another_tokenizer_without_its_bytes_per_token_is_no_error() -> None:
    own = known(FORECAST.bytes_per_token)
    other = FORECAST.model_copy(update={"bytes_per_token": None})
    found = verify(LOG, other, other)
    assert [one.answer for one in found.answers] == ["yes", "yes", "unknown"]
    assert verify(LOG, other, other, own).verdict == "within"
    in_bpb = tuple(replace(p, loss=p.loss / math.log(2) / own) for p in LOG.points)
    told = verify(CloudLog(in_bpb, "bits_per_byte", 0), other, other)
    assert (told.verdict, told.bytes_per_token) == ("within", None)
