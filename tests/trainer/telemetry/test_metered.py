"""Trials with the energy of their interval."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.executors import InstantExecutor
from tests.support.nvml import FakeNvml, gb10
from tests.support.trials import trial_ok, trial_spec
from trainer.executors.base import Executor, Finished
from trainer.spec import CurvePoint, TrialFailed, TrialOk, TrialSpec
from trainer.telemetry import MeteredExecutor, NoTelemetry, Sampler, choose_telemetry


class Napping(InstantExecutor):
    """An executor whose trials sleep."""

    def __init__(self, result: TrialOk | TrialFailed) -> None:
        self._result = result

    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        time.sleep(0.1)
        return Finished(self._result, 0.1)


SPEC = trial_spec()
OK = trial_ok(SPEC)


def run(executor: Executor) -> Finished:
    return executor.run(SPEC, Path("unused"), should_stop=lambda: False)


def test_a_measured_trial_carries_its_energy() -> None:
    telemetry = choose_telemetry("cuda", nvml=FakeNvml(gb10(power=3_600_000)))
    with Sampler(telemetry, None) as sampler:
        began_s = time.monotonic()
        finished = run(MeteredExecutor(Napping(OK), sampler))
        took_s = time.monotonic() - began_s
    assert isinstance(finished.result, TrialOk)
    assert finished.result.energy_wh is not None
    assert 0.1 <= finished.result.energy_wh <= took_s  # 3600 W: one Wh a second
    assert finished.result.model_copy(update={"energy_wh": None}) == OK
    assert finished.wall_s == 0.1


@pytest.mark.parametrize("result", [OK, TrialFailed(status="oom", message="too large")])
def test_where_nothing_measures_the_result_is_as_it_was(result: TrialOk | TrialFailed) -> None:
    with Sampler(NoTelemetry("no GPU"), None) as sampler:
        assert run(MeteredExecutor(Napping(result), sampler)).result == result
