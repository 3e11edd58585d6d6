"""Simulate NVML: devices that answer as real ones would, for tests without a driver.

A :class:`FakeNvml` replaces the module ``pynvml``. Constants and exception classes are the real
module's own. The functions answer from plain tables, and any function of a device can be made to
raise, hang or be missing.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 1 << 30


def not_supported() -> pynvml.NVMLError:
    return pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@dataclass
class FakeDevice:
    """Hold each function's answer, by its name and the arguments that distinguish calls.

    An answer that is an exception is raised, and one that is a function is called.
    """

    name: str
    uuid: str
    answers: dict[str, Any]
    dead: pynvml.NVMLError | None = None
    """If set, every query raises it: the driver died."""
    asked: Counter[str] = field(default_factory=Counter)
    hang: threading.Event | None = None
    """If set, every query waits for this event."""
    part: "FakeDevice | None" = None
    """Its slice, if MIG splits it."""

    def answer(self, key: str) -> Any:
        self.asked[key] += 1
        if self.hang is not None:
            self.hang.wait()
        value = self.answers[key] if self.dead is None else self.dead
        if isinstance(value, Exception):
            raise value
        return value() if callable(value) else value


def held(gib: dict[int, float | None]) -> list[SimpleNamespace]:
    """Return NVML's list of processes with their memory; None: not told."""
    return [
        SimpleNamespace(pid=pid, usedGpuMemory=None if one is None else int(one * GIB))
        for pid, one in gib.items()
    ]


def h200(uuid: str = "GPU-a1b2c3d4-0000-0000-0000-000000000001", **answers: Any) -> FakeDevice:
    """Return a data-center GPU under load, which answers everything."""
    usual: dict[str, Any] = {
        "energy": 5_000_000_000,
        "power": 612_345,
        "utilisation": SimpleNamespace(gpu=97, memory=55),
        "temperature": 61,
        "clock SM": 1755,
        "clock MEM": 3201,
        "reasons": pynvml.nvmlClocksEventReasonSwPowerCap,
        "memory": SimpleNamespace(total=141 * GIB, free=100 * GIB, used=41 * GIB),
        "processes": [],
    }
    return FakeDevice("NVIDIA H200", uuid, {**usual, **answers})


def gb10(**answers: Any) -> FakeDevice:
    """Return a DGX Spark's GPU, which reports no memory of its own and no memory clock."""
    usual: dict[str, Any] = {
        "energy": not_supported(),
        "power": 55_800,
        "utilisation": SimpleNamespace(gpu=87, memory=0),
        "temperature": 66,
        "clock SM": 2418,
        "clock MEM": not_supported(),
        "reasons": 0,
        "memory": not_supported(),
        "processes": [],
    }
    return FakeDevice(
        "NVIDIA GB10", "GPU-5a5a0000-0000-0000-0000-00000000000f", {**usual, **answers}
    )


_QUERIES = {
    "nvmlDeviceGetTotalEnergyConsumption": "energy",
    "nvmlDeviceGetPowerUsage": "power",
    "nvmlDeviceGetUtilizationRates": "utilisation",
    "nvmlDeviceGetTemperatureV": "temperature",
    "nvmlDeviceGetTemperature": "temperature",
    "nvmlDeviceGetClockInfo": "clock",
    "nvmlDeviceGetCurrentClocksEventReasons": "reasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons": "reasons",
    "nvmlDeviceGetMemoryInfo": "memory",
    "nvmlDeviceGetComputeRunningProcesses": "processes",
}
"""Functions of a device, by the answer that each returns."""
_CLOCKS = {pynvml.NVML_CLOCK_SM: "clock SM", pynvml.NVML_CLOCK_MEM: "clock MEM"}


class FakeNvml:
    """Simulate the part of ``pynvml`` that telemetry uses."""

    def __init__(
        self,
        *devices: FakeDevice,
        init_error: pynvml.NVMLError | None = None,
        lacks: frozenset[str] = frozenset(),
    ) -> None:
        """
        :param lacks: functions that this version of pynvml does not have.
        """
        self._devices = devices
        self._init_error = init_error
        self._lacks = lacks
        self.open = 0
        """Number of nvmlInit calls without an nvmlShutdown."""

    def __getattr__(self, name: str) -> Any:
        """Return a function of a device, or one of the real module's constants and exceptions; any
        other missing function is an error."""
        if name.startswith(("NVML_", "NVMLError")):
            return getattr(pynvml, name)
        if name not in _QUERIES or name in self._lacks:
            raise AttributeError(name)

        def query(handle: FakeDevice, which: int = pynvml.NVML_TEMPERATURE_GPU) -> Any:
            what = _QUERIES[name]
            assert what != "temperature" or which == pynvml.NVML_TEMPERATURE_GPU
            return handle.answer(_CLOCKS[which] if what == "clock" else what)

        return query

    def nvmlInit(self) -> None:  # noqa: N802 (NVML's own names, here and below)
        if self._init_error is not None:
            raise self._init_error
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self._devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeDevice:  # noqa: N802
        if index >= len(self._devices):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self._devices[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> SimpleNamespace:  # noqa: N802
        """Return a slice of the device that its UUID names: MIG-<the device's UUID>."""
        for device in self._devices:
            if uuid == f"MIG-{device.uuid}":
                return SimpleNamespace(parent=device, answer=(device.part or device).answer)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(  # noqa: N802
        self, handle: SimpleNamespace
    ) -> FakeDevice:
        parent: FakeDevice = handle.parent
        return parent

    def nvmlDeviceGetName(self, handle: FakeDevice) -> str:  # noqa: N802
        return handle.name

    def nvmlDeviceGetUUID(self, handle: FakeDevice) -> str:  # noqa: N802
        return handle.uuid
