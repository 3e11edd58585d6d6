"""``verify`` confirms sound runs, finds planted faults, and says so where it cannot tell."""

import math
from dataclasses import replace

import numpy as np
import pytest

from autoresearch.errors import HandoffError
from funnel.forecast.band import Text, log_middle
from funnel.forecast.cloud_log import CloudLog
from funnel.forecast.verification import Verification, _movement, verify
from funnel.forecast.watch import LASTING
from tests.funnel.forecast.test_ladder_forecast import FAR, NEAR, forecast_of
from tests.support.present import known

FORECAST = forecast_of(NEAR)
LOG = NEAR.log("sound", 0)


def compared(log: CloudLog) -> Verification:
    return verify(log, FORECAST, None)


def until(log: CloudLog, share: float) -> CloudLog:
    last = share * log.points[-1].tokens
    return replace(log, points=tuple(p for p in log.points if p.tokens <= last))


def with_losses(first: int, count: int, loss: float) -> CloudLog:
    """Return the sound run's log with some of its losses replaced."""
    points = list(LOG.points)
    for place in range(first, first + count):
        points[place] = replace(points[place], loss=loss)
    return replace(LOG, points=tuple(points))


def test_a_sound_run_is_within_once_the_needed_faults_would_have_been_caught() -> None:
    found = compared(LOG)
    assert (found.verdict, found.departure) == ("within", None)
    assert {c.name for c in found.caught if c.by_tokens} == {"x1.05", "stop0.05", "stop0.50"}
    assert found.before + found.after + found.compared == found.points == len(LOG.points)


@pytest.mark.parametrize("kind", ["x1.05", "x1.40", "stop 5 %", "stop 50 %"])
def test_what_the_plan_says_is_caught_is_caught_by_then(kind: str) -> None:
    found = compared(NEAR.log(kind, 1))
    assert found.verdict == "broken"
    name = kind if kind.startswith("x") else f"stop{float(kind.split()[1]) / 100:.2f}"
    catch = next(catch for catch in FORECAST.ladder.caught if catch.name == name)
    planned = known(catch.by_tokens) / FORECAST.tokens_per_step
    assert known(known(found.departure).seen_at_step) <= 1.3 * planned


def test_a_spike_that_recovers_is_no_departure() -> None:
    assert compared(NEAR.log("spikes", 2)).departure is None


def test_losses_that_are_not_finite_in_a_row_are_broken_and_one_is_not() -> None:
    one = compared(with_losses(700, 1, math.nan))
    assert (one.verdict, one.not_finite) == ("within", 1)
    lost = known(compared(with_losses(900, LASTING, math.inf)).departure)
    assert (lost.side, lost.step, lost.worst) == ("not finite", LOG.points[900].step, None)


@pytest.mark.parametrize("share", [0.06, 0.03, 0.001])
def test_nothing_is_confirmed_before_it_would_have_been_caught(share: float) -> None:
    early = until(LOG, share)
    assert early.points[-1].tokens < known(FORECAST.telling_point).tokens
    assert compared(early).verdict == "too_early"


def test_a_worthless_forecast_confirms_nothing() -> None:
    found = verify(FAR.log("sound", 0), forecast_of(FAR), None)
    assert (found.verdict, found.departure, found.caught) == ("too_wide", None, ())


def test_another_tokenizer_needs_its_bytes_per_token() -> None:
    own = known(FORECAST.proxy_text.bytes_per_token)
    other = FORECAST.model_copy(
        update={"target_text": Text(tokenizer="its", vocab_size=128_256, bytes_per_token=None)}
    )
    with pytest.raises(HandoffError, match="--bytes-per-token"):
        verify(LOG, other, None)
    assert verify(LOG, other, own).verdict == "within"
    in_bpb = tuple(replace(p, loss=p.loss / math.log(2) / own) for p in LOG.points)
    assert verify(CloudLog(in_bpb, "bits_per_byte", 0), other, None).bytes_per_token is None


@pytest.mark.parametrize(
    ("pace", "never"), [(0.3, {"stopped", "rising"}), (0.0, {"slower", "rising"})]
)
def test_the_words_say_how_the_loss_moves_itself(pace: float, never: set[str]) -> None:
    """The loss falls on at this share of its pace from a tenth of the run on."""
    begin = LOG.points[len(LOG.points) // 10].tokens
    middle = [
        float(log_middle(FORECAST.points, np.array([float(p.tokens)]))[0]) for p in LOG.points
    ]
    at_begin = next(m for p, m in zip(LOG.points, middle, strict=True) if p.tokens >= begin)
    points = tuple(
        replace(p, loss=p.loss * math.exp((1 - pace) * max(0.0, at_begin - m)))
        if p.tokens >= begin
        else p
        for p, m in zip(LOG.points, middle, strict=True)
    )
    departure = known(compared(replace(LOG, points=points)).departure)
    assert departure.side not in never


@pytest.mark.parametrize(("slope", "side"), [(-0.02, "slower"), (0.0, "stopped"), (0.02, "rising")])
def test_a_movement_is_told_from_noise(slope: float, side: str) -> None:
    rng = np.random.default_rng(1)
    right = [
        _movement(slope * np.arange(12) + rng.normal(0, 0.005, 12)) == side for _ in range(100)
    ]
    assert sum(right) >= 85
