"""Read an NVIDIA device through NVML, as far as it answers.

Devices differ: a GB10 has no memory of its own to report, a GPU split by MIG no utilization, an old
driver no energy counter. Queries are independent; one that fails at the start is not repeated.

Reference: NVML API, https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import psutil

from autoresearch.words import timestamp
from trainer.telemetry.sample import NoTelemetry, Sample, Telemetry


def choose_telemetry(
    device: str,
    *,
    visible_devices: str | None = None,
    device_order: str | None = None,
    nvml: Nvml | None = None,
) -> Telemetry:
    """Return the telemetry of ``cpu``, ``cuda`` or ``cuda:N``; it never fails.

    CUDA numbers the devices it may see; NVML numbers all devices by PCI bus. A UUID in
    ``CUDA_VISIBLE_DEVICES`` is exact. A number there, or an unset variable, is interpreted as
    NVML's number. This is correct if ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID`` or all GPUs are of one
    model (otherwise CUDA puts the fastest first); if it may be wrong the description says so.

    :param visible_devices: the environment's ``CUDA_VISIBLE_DEVICES``; None if unset.
    :param device_order: the environment's ``CUDA_DEVICE_ORDER``.
    :param nvml: an object with the interface of ``pynvml``; None: that module.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return NoTelemetry(f"the device is {device}")
    if nvml is None:
        try:
            import pynvml  # noqa: PLC0415 (a machine without a GPU never loads it)
        except ImportError as error:
            return NoTelemetry(f"nvidia-ml-py does not import ({error})")
        nvml = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return NoTelemetry(f"NVML does not start ({error})")
    try:
        handle = _handle(nvml, int(number or 0), visible_devices)
        caveat = ""
        by_number = not visible_devices or visible_devices[:1].isdecimal()
        may_differ = by_number and device_order != "PCI_BUS_ID"
        if may_differ and len({nvml.nvmlDeviceGetName(one) for one in _all_handles(nvml)}) > 1:
            caveat = f"; set CUDA_DEVICE_ORDER=PCI_BUS_ID to be sure that this is {device}"
        return NvmlTelemetry(nvml, handle, caveat=caveat)
    except (nvml.NVMLError, LookupError, ValueError) as error:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
        return NoTelemetry(f"NVML does not know {device} ({error})")


def _handle(nvml: Nvml, ordinal: int, visible_devices: str | None) -> Any:
    """Return the NVML handle of CUDA device ``ordinal``.

    :raises LookupError: if no such device is visible.
    """
    if visible_devices is None:
        return nvml.nvmlDeviceGetHandleByIndex(ordinal)
    entries = [entry.strip() for entry in visible_devices.split(",") if entry.strip()]
    if ordinal >= len(entries):
        raise LookupError(f"CUDA_VISIBLE_DEVICES is {visible_devices!r}")
    entry = entries[ordinal]
    if entry.isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(entry))
    if entry.startswith("MIG"):
        # Power and energy exist for the whole GPU only.
        slice_handle = nvml.nvmlDeviceGetHandleByUUID(entry)
        return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(slice_handle)
    for handle in _all_handles(nvml):
        if nvml.nvmlDeviceGetUUID(handle).startswith(entry):  # CUDA accepts the beginning of a UUID
            return handle
    raise LookupError(f"CUDA_VISIBLE_DEVICES is {visible_devices!r}")


def _all_handles(nvml: Nvml) -> list[Any]:
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


Nvml: TypeAlias = Any
"""The module ``pynvml``, or an object with its interface."""
Query: TypeAlias = Callable[[], Any]

_GIB = 1 << 30

_THROTTLE_WORDS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bits of nvmlClocksEventReasons in NVML's own names, in snake case."""


class NvmlTelemetry:
    """One device. Every query is tried at construction, so that ``description`` can list missing
    ones. The caller initializes NVML, and :meth:`close` shuts it down."""

    def __init__(self, nvml: Nvml, device: Any, *, caveat: str = "") -> None:
        """Try all queries.

        :param device: an NVML device handle.
        :param caveat: what to add to the description.
        """
        self._nvml = nvml
        self._is_unified = _is_unified(nvml, device)
        self._queries = {
            name: next((query for query in queries if self._answer(query) is not None), None)
            for name, queries in _all_queries(nvml, device, unified=self._is_unified).items()
        }
        missing = [name for name, query in self._queries.items() if query is None]
        answers = f"; does not answer {', '.join(missing)}" if missing else ""
        unified = "; memory is the machine's" if self._is_unified else ""
        try:
            name = str(nvml.nvmlDeviceGetName(device))
        except nvml.NVMLError:
            name = "a device without a name"
        self.description = f"NVML, {name}{unified}{answers}{caveat}"

    def sample(self) -> Sample:
        """See :meth:`Telemetry.sample`."""
        energy_mj = self._ask("energy")
        power_w = self._ask("power")
        monotonic_s, at = time.monotonic(), timestamp()
        sample = Sample(
            at=at,
            monotonic_s=monotonic_s,
            gpu_util_pct=self._ask("utilisation"),
            power_w=power_w,
            temperature_c=self._ask("temperature"),
            sm_clock_mhz=self._ask("SM clock"),
            mem_clock_mhz=self._ask("memory clock"),
            throttle_reasons=self._ask("throttle reasons"),
            energy_mj=energy_mj,
        )
        if sample.blank and self._is_unified:
            return sample  # the machine's memory says nothing of a driver that died
        used_gib, total_gib = self._ask("memory") or (None, None)
        return replace(sample, mem_used_gib=used_gib, mem_total_gib=total_gib)

    def close(self) -> None:
        """See :meth:`Telemetry.close`."""
        with suppress(self._nvml.NVMLError):  # a driver that died has nothing to shut down
            self._nvml.nvmlShutdown()

    def _ask(self, name: str) -> Any:
        """Return the present answer; None if there is none."""
        query = self._queries[name]
        return None if query is None else self._answer(query)

    def _answer(self, query: Query) -> Any:
        try:
            return query()
        except (self._nvml.NVMLError, AttributeError):  # an older pynvml lacks newer functions
            return None


def _is_unified(nvml: Nvml, device: Any) -> bool:
    """Return whether the device has no memory of its own. One that refuses to report it has."""
    try:
        return not nvml.nvmlDeviceGetMemoryInfo(device).total  # some drivers report nothing
    except nvml.NVMLError as error:
        return isinstance(error, nvml.NVMLError_NotSupported)


def _all_queries(nvml: Nvml, device: Any, *, unified: bool) -> dict[str, list[Query]]:
    """Return the ways to ask for each value, the best first."""

    def memory() -> tuple[float, float]:
        info = nvml.nvmlDeviceGetMemoryInfo(device)
        return info.used / _GIB, info.total / _GIB

    sensor = nvml.NVML_TEMPERATURE_GPU
    return {
        # A counter that stays at zero counts nothing.
        "energy": [lambda: int(nvml.nvmlDeviceGetTotalEnergyConsumption(device)) or None],
        "power": [lambda: nvml.nvmlDeviceGetPowerUsage(device) / 1000],
        "utilisation": [lambda: float(nvml.nvmlDeviceGetUtilizationRates(device).gpu)],
        "temperature": [
            lambda: float(nvml.nvmlDeviceGetTemperatureV(device, sensor)),
            lambda: float(nvml.nvmlDeviceGetTemperature(device, sensor)),
        ],
        "SM clock": [lambda: float(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM))],
        "memory clock": [lambda: float(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM))],
        "throttle reasons": [
            lambda: throttle_words(nvml.nvmlDeviceGetCurrentClocksEventReasons(device)),
            lambda: throttle_words(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)),
        ],
        "memory": [machine_memory_gib if unified else memory],
    }


def throttle_words(bits: int) -> tuple[str, ...]:
    """Return NVML's clocks event reasons as words; a bit without a name keeps its number."""
    set_bits = (1 << place for place in range(bits.bit_length()) if bits >> place & 1)
    return tuple(_THROTTLE_WORDS.get(bit, f"reason_{bit:#x}") for bit in set_bits)


def machine_memory_gib() -> tuple[float, float]:
    """Return used and total memory of this machine. Used is what is not available, so that the
    reclaimable page cache does not count."""
    memory = psutil.virtual_memory()
    return (memory.total - memory.available) / _GIB, memory.total / _GIB
