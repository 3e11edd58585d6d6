"""Values that devices report, and values that they lack."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from tests.support.nvml import FakeDevice, FakeNvml, gb10, h200, held
from trainer.telemetry import NoTelemetry, choose_telemetry
from trainer.telemetry.nvml import NvmlTelemetry
from trainer.telemetry.sample import MEASURED, DeviceMemory


def nvml_error(name: str) -> pynvml.NVMLError:
    return pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{name}"))


def looking_at(device: FakeDevice, **options: Any) -> NvmlTelemetry:
    return NvmlTelemetry(FakeNvml(device, **options), device)


def test_an_h200_answers_everything_in_its_units() -> None:
    before = time.monotonic()
    sample = looking_at(h200()).sample()
    assert before <= sample.monotonic_s <= time.monotonic()
    assert {name: getattr(sample, name) for name in MEASURED} == {
        "gpu_util_pct": 97,
        "power_w": pytest.approx(612.345),
        "temperature_c": 61,
        "sm_clock_mhz": 1755,
        "mem_clock_mhz": 3201,
        "throttle_reasons": ("sw_power_cap",),
        "mem_used_gib": 41,
        "mem_total_gib": 141,
        "energy_mj": 5_000_000_000,
    }
    assert looking_at(h200()).description == "NVML, NVIDIA H200"


def test_a_gb10_answers_the_rest_and_its_memory_is_the_machines() -> None:
    telemetry = looking_at(gb10())
    sample = telemetry.sample()
    assert sample.power_w == pytest.approx(55.8)
    assert sample.temperature_c == 66
    assert sample.throttle_reasons == ()
    assert sample.energy_mj is None
    assert sample.mem_clock_mhz is None
    assert sample.mem_total_gib == pytest.approx(psutil.virtual_memory().total / 2**30)
    assert sample.mem_used_gib is not None
    assert 0 < sample.mem_used_gib < psutil.virtual_memory().total / 2**30
    empty = looking_at(gb10(memory=pynvml.c_nvmlMemory_t())).sample()
    assert empty.mem_total_gib == sample.mem_total_gib, "a unified pool reported as nothing"
    assert telemetry.description == (
        "NVML, NVIDIA GB10; memory is the machine's; does not answer energy, memory clock"
    )


@pytest.mark.parametrize(
    ("answers", "missing"),
    [
        ({"energy": 0}, {"energy_mj"}),
        ({"utilisation": nvml_error("UNKNOWN")}, {"gpu_util_pct"}),
        ({"memory": nvml_error("NO_PERMISSION")}, {"mem_used_gib", "mem_total_gib"}),
    ],
    ids=["a counter at zero", "fails from the start", "forbidden: not the machine's either"],
)
def test_what_is_not_answered_is_missing_alone(answers: dict[str, Any], missing: set[str]) -> None:
    sample = looking_at(h200(**answers)).sample()
    assert {name for name in MEASURED if getattr(sample, name) is None} == missing


def test_a_passing_trouble_is_one_missing_value() -> None:
    device = h200()
    telemetry = looking_at(device)
    device.answers["power"] = nvml_error("TIMEOUT")
    sample = telemetry.sample()
    assert {name for name in MEASURED if getattr(sample, name) is None} == {"power_w"}
    device.answers["power"] = 300_000
    assert telemetry.sample().power_w == 300


@pytest.mark.parametrize("device", [h200(), gb10()], ids=lambda device: device.name)
@pytest.mark.parametrize("end", ["GPU_IS_LOST", "DRIVER_NOT_LOADED", "UNKNOWN", "UNINITIALIZED"])
def test_the_sample_of_a_driver_that_died_is_blank(device: FakeDevice, end: str) -> None:
    device = replace(device)
    telemetry = looking_at(device)
    assert not telemetry.sample().blank
    device.dead = nvml_error(end)
    assert telemetry.sample().blank


def test_older_functions_serve_where_newer_ones_are_missing() -> None:
    sample = looking_at(
        h200(),
        lacks=frozenset({"nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons"}),
    ).sample()
    assert sample.temperature_c == 61
    assert sample.throttle_reasons == ("sw_power_cap",)


# --- memory by process --------------------------------------------------------------------------


def test_memory_is_told_by_process_and_for_the_whole_gpu() -> None:
    device = h200(processes=held({7: 2.5, 8: None}))
    assert looking_at(device).memory() == DeviceMemory(41, {7: 2.5})
    device.answers["processes"] = nvml_error("NO_PERMISSION")
    assert looking_at(device).memory() == DeviceMemory(41, {})


def test_a_shared_pool_tells_only_of_processes_and_a_dead_driver_of_nothing() -> None:
    assert looking_at(gb10(processes=held({7: 2.5}))).memory() == DeviceMemory(None, {7: 2.5})
    device = h200()
    telemetry = looking_at(device)
    device.dead = nvml_error("GPU_IS_LOST")
    assert telemetry.memory() is None
    assert NoTelemetry("none").memory() is None


def test_memory_of_a_slice_is_its_own() -> None:
    gpu = h200()
    gpu.part = h200(memory=SimpleNamespace(total=18 << 30, used=3 << 30), processes=held({7: 2.5}))
    telemetry = choose_telemetry(
        "cuda", visible_devices=f"MIG-{gpu.uuid}", nvml=FakeNvml(gpu, h200("GPU-2"))
    )
    assert telemetry.memory() == DeviceMemory(3, {7: 2.5})
    sample = telemetry.sample()
    assert (sample.mem_used_gib, sample.mem_total_gib) == (3, 18)
    assert sample.power_w == pytest.approx(612.345), "only the whole GPU has a power"


# --- device selection --------------------------------------------------------------------------

FIRST = h200("GPU-11110000-0000-0000-0000-000000000000")
SECOND = h200("GPU-22220000-0000-0000-0000-000000000000", power=222_000)


@pytest.mark.parametrize(
    ("device", "visible", "power_w"),
    [
        ("cuda", None, 612.345),
        ("cuda:1", None, 222),
        ("cuda:0", "1", 222),
        ("cuda:1", "1, 0", 612.345),
        ("cuda:0", "GPU-2222", 222),
        ("cuda:1", "GPU-2222,GPU-1111", 612.345),
        ("cuda", "MIG-GPU-22220000-0000-0000-0000-000000000000", 222),
    ],
)
def test_a_device_string_finds_its_gpu(device: str, visible: str | None, power_w: float) -> None:
    telemetry = choose_telemetry(device, visible_devices=visible, nvml=FakeNvml(FIRST, SECOND))
    assert telemetry.sample().power_w == pytest.approx(power_w)


@pytest.mark.parametrize(
    ("device", "visible"),
    [
        ("cuda:2", None),
        ("cuda:1", "0"),
        ("cuda", ""),
        ("cuda", "-1"),
        ("cuda", "GPU-3333"),
        ("cuda", "MIG-3333"),
        ("cuda:x", None),
    ],
)
def test_a_gpu_that_is_not_there_is_no_telemetry(device: str, visible: str | None) -> None:
    nvml = FakeNvml(FIRST, SECOND)
    telemetry = choose_telemetry(device, visible_devices=visible, nvml=nvml)
    assert isinstance(telemetry, NoTelemetry)
    assert nvml.open == 0


def test_a_cpu_and_a_machine_without_a_driver_have_none() -> None:
    nvml = FakeNvml(init_error=nvml_error("LIBRARY_NOT_FOUND"))
    for device, why in (("cpu", "the device is cpu"), ("cuda", "NVML does not start")):
        telemetry = choose_telemetry(device, nvml=nvml)
        assert telemetry.sample().blank
        assert why in telemetry.description
        telemetry.close()


def test_closing_lets_go_of_nvml() -> None:
    nvml = FakeNvml(h200())
    telemetry = choose_telemetry("cuda", nvml=nvml)
    assert nvml.open == 1
    telemetry.close()
    assert nvml.open == 0


def test_the_order_of_devices_is_mentioned_only_where_it_may_be_wrong() -> None:
    mixed, alike = FakeNvml(gb10(), h200()), FakeNvml(FIRST, SECOND)
    assert "CUDA_DEVICE_ORDER" in choose_telemetry("cuda", nvml=mixed).description
    for certain in (
        choose_telemetry("cuda", nvml=alike),
        choose_telemetry("cuda", nvml=mixed, device_order="PCI_BUS_ID"),
        choose_telemetry("cuda", nvml=mixed, visible_devices="GPU-5a5a"),
    ):
        assert "CUDA_DEVICE_ORDER" not in certain.description
