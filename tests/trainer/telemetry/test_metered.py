"""A trial's result includes the energy of its interval."""

from __future__ import annotations

import time

import pytest

from tests.support.nvml import FakeNvml, gb10
from tests.support.trials import trial_ok, trial_spec
from trainer.executors.base import Finished
from trainer.spec import TrialFailed, TrialOk
from trainer.telemetry import NoTelemetry, Sampler, begin_metering, choose_telemetry

OK = trial_ok(trial_spec())


def run(sampler: Sampler, result: TrialOk | TrialFailed) -> Finished:
    """Run a trial that sleeps."""
    metered = begin_metering(sampler)
    time.sleep(0.1)
    return metered(Finished(result, 0.1))


def test_a_measured_trial_carries_its_energy() -> None:
    telemetry = choose_telemetry("cuda", nvml=FakeNvml(gb10(power=3_600_000)))
    with Sampler(telemetry, None) as sampler:
        began_s = time.monotonic()
        finished = run(sampler, OK)
        took_s = time.monotonic() - began_s
    assert isinstance(finished.result, TrialOk)
    assert finished.result.energy_wh is not None
    assert 0.1 <= finished.result.energy_wh <= took_s  # 3600 W: one Wh per second
    assert finished.result.model_copy(update={"energy_wh": None}) == OK
    assert finished.wall_s == 0.1


@pytest.mark.parametrize("result", [OK, TrialFailed(status="oom", message="too large")])
def test_where_nothing_measures_the_result_is_as_it_was(result: TrialOk | TrialFailed) -> None:
    with Sampler(NoTelemetry("no GPU"), None) as sampler:
        assert run(sampler, result).result == result
