import time
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pynvml
import pytest

from tests.support.nvml import FakeDevice, FakeNvml, gb10, h200
from trainer.telemetry import NoTelemetry, Sample, Sampler, Telemetry, choose_telemetry
from trainer.telemetry.sample import MEASURED


class Working(FakeDevice):
    """A device whose energy counter counts."""

    def answer(self, key: str) -> Any:
        if key == "energy":
            self.answers["energy"] += 1000
        return super().answer(key)


def on(device: FakeDevice, **changes: object) -> Telemetry:
    return choose_telemetry("cuda", nvml=FakeNvml(replace(device, **changes)))  # type: ignore[arg-type]


def lost() -> Telemetry:
    """Return the telemetry of a device that dies after it was opened."""
    device = h200()
    telemetry = choose_telemetry("cuda", nvml=FakeNvml(device))
    device.dead = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
    return telemetry


MAKERS: dict[str, Callable[[], Telemetry]] = {
    "a GPU that answers all": lambda: on(Working(**vars(h200()))),
    "a GPU that shares the machine's memory": lambda: on(gb10()),
    "a GPU that answers nothing": lambda: on(h200(), dead=pynvml.NVMLError(3)),
    "a GPU that was lost": lost,
    "no GPU there": lambda: choose_telemetry("cuda:7", nvml=FakeNvml(h200())),
    "a processor": lambda: choose_telemetry("cpu"),
    "none": lambda: NoTelemetry("nobody looks"),
}
HIGHEST = {"gpu_util_pct": 100.0, "temperature_c": 150.0, "power_w": 3000.0}
"""A larger number is in another unit than its name states."""


@pytest.fixture(params=list(MAKERS))
def telemetry(request: pytest.FixtureRequest) -> Telemetry:
    return MAKERS[request.param]()


def test_samples_are_of_their_moment_in_the_units_of_their_names(telemetry: Telemetry) -> None:
    said = telemetry.description
    assert said and "\n" not in said and not said.endswith(".")
    asked_s, asked_at = time.monotonic(), datetime.now(UTC)
    found = []
    for _ in range(3):
        found.append(sample := telemetry.sample())
        assert asked_s <= sample.monotonic_s <= time.monotonic()
        at = datetime.fromisoformat(sample.at)
        assert at.utcoffset() == timedelta(0)
        assert asked_at - timedelta(milliseconds=1) <= at <= datetime.now(UTC)
        asked_s = sample.monotonic_s
        for field in fields(Sample):
            value = getattr(sample, field.name)
            if field.name in MEASURED and isinstance(value, int | float):
                assert 0 <= value <= HIGHEST.get(field.name, float("inf")), field.name
        if sample.mem_used_gib is not None:
            assert sample.mem_total_gib is not None
            assert sample.mem_used_gib <= sample.mem_total_gib < 1 << 16
        assert sample.energy_mj is None or isinstance(sample.energy_mj, int)
        assert sample.throttle_reasons is None or isinstance(sample.throttle_reasons, tuple)
    counted = [sample.energy_mj for sample in found if sample.energy_mj is not None]
    assert counted == sorted(set(counted)), "the energy counter never falls"
    answers = [not sample.blank for sample in found]
    assert answers == sorted(answers, reverse=True), "what is lost stays lost"
    assert not any(answers) or not said.startswith("none: ")
    telemetry.close()


def test_a_sampler_outlives_it(telemetry: Telemetry) -> None:
    notes: list[str] = []
    with Sampler(telemetry, None, interval_s=0.01, on_note=notes.append) as sampler:
        began_s = sampler.mark()
        time.sleep(0.05)
        energy_wh = sampler.energy_wh(began_s)
    assert energy_wh is None or energy_wh >= 0
    assert len(notes) <= 1


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:0", "cuda:9"])
def test_choosing_one_never_fails(device: str) -> None:
    """The choice is made on this machine, whatever it has."""
    chosen = choose_telemetry(device)
    assert chosen.description
    chosen.close()
