"""Read an NVIDIA device through NVML, as far as it answers.

Devices differ: a GB10 has no memory of its own to report, a GPU split by MIG no utilization, an old
driver no energy counter. Queries are independent.

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
from trainer.telemetry.sample import DeviceMemory, NoTelemetry, Sample, Telemetry


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
        handle, part = _handles(nvml, int(number or 0), visible_devices)
        caveat = ""
        by_number = not visible_devices or visible_devices[:1].isdecimal()
        may_differ = by_number and device_order != "PCI_BUS_ID"
        if may_differ and len({nvml.nvmlDeviceGetName(one) for one in _all_handles(nvml)}) > 1:
            caveat = f"; set CUDA_DEVICE_ORDER=PCI_BUS_ID to be sure that this is {device}"
        return NvmlTelemetry(nvml, handle, part=part, caveat=caveat)
    except (nvml.NVMLError, LookupError, ValueError) as error:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
        return NoTelemetry(f"NVML does not know {device} ({error})")


def _handles(nvml: Nvml, ordinal: int, visible_devices: str | None) -> tuple[Any, Any]:
    """Return the NVML handles of the GPU of CUDA device ``ordinal``, and of the part that has its
    memory: a slice of the GPU under MIG, else the GPU.

    :raises LookupError: if no such device is visible.
    """
    if visible_devices is None:
        return (nvml.nvmlDeviceGetHandleByIndex(ordinal),) * 2
    entries = [entry.strip() for entry in visible_devices.split(",") if entry.strip()]
    if ordinal >= len(entries):
        raise LookupError(f"CUDA_VISIBLE_DEVICES is {visible_devices!r}")
    entry = entries[ordinal]
    if entry.isdecimal():
        return (nvml.nvmlDeviceGetHandleByIndex(int(entry)),) * 2
    if entry.startswith("MIG"):
        # Power and energy exist for the whole GPU only.
        slice_handle = nvml.nvmlDeviceGetHandleByUUID(entry)
        return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(slice_handle), slice_handle
    for handle in _all_handles(nvml):
        if nvml.nvmlDeviceGetUUID(handle).startswith(entry):  # CUDA accepts the beginning of a UUID
            return handle, handle
    raise LookupError(f"CUDA_VISIBLE_DEVICES is {visible_devices!r}")


def _all_handles(nvml: Nvml) -> list[Any]:
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


Nvml: TypeAlias = Any
"""The module ``pynvml``, or an object with its interface."""

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
_NAMES = {
    "energy": "energy_mj",
    "power": "power_w",
    "utilisation": "gpu_util_pct",
    "temperature": "temperature_c",
    "SM clock": "sm_clock_mhz",
    "memory clock": "mem_clock_mhz",
    "throttle reasons": "throttle_reasons",
    "memory": "mem_used_gib",
}
"""Names in a description, and the fields of a sample."""


class NvmlTelemetry:
    """One device. ``description`` lists what it does not answer at construction. The caller
    initializes NVML, and :meth:`close` shuts it down."""

    def __init__(self, nvml: Nvml, device: Any, *, part: Any = None, caveat: str = "") -> None:
        """
        :param device: an NVML device handle.
        :param part: the handle of a slice of the device, whose memory is read; None: all of it.
        :param caveat: what to add to the description.
        """
        self._nvml, self._device = nvml, device
        self._part = device if part is None else part
        try:
            # Some drivers of a GPU without memory of its own report a total of 0.
            self._is_unified = not nvml.nvmlDeviceGetMemoryInfo(self._part).total
        except nvml.NVMLError as error:
            self._is_unified = isinstance(error, nvml.NVMLError_NotSupported)
        sample = self.sample()
        missing = [name for name, field in _NAMES.items() if getattr(sample, field) is None]
        answers = f"; does not answer {', '.join(missing)}" if missing else ""
        unified = "; memory is the machine's" if self._is_unified else ""
        name = self._ask(str, "nvmlDeviceGetName") or "a device without a name"
        self.description = f"NVML, {name}{unified}{answers}{caveat}"

    def sample(self) -> Sample:
        """See :meth:`Telemetry.sample`."""
        ask, sensor = self._ask, self._nvml.NVML_TEMPERATURE_GPU
        monotonic_s = time.monotonic()
        # A counter that stays at zero counts nothing.
        energy_mj = ask(int, "nvmlDeviceGetTotalEnergyConsumption") or None
        power_w = ask(lambda mw: mw / 1000, "nvmlDeviceGetPowerUsage")
        temperature_c = ask(float, "nvmlDeviceGetTemperatureV", sensor)
        reasons = ask(throttle_words, "nvmlDeviceGetCurrentClocksEventReasons")
        sample = Sample(
            at=timestamp(),
            monotonic_s=monotonic_s,
            energy_mj=energy_mj,
            power_w=power_w,
            gpu_util_pct=ask(lambda rates: float(rates.gpu), "nvmlDeviceGetUtilizationRates"),
            temperature_c=ask(float, "nvmlDeviceGetTemperature", sensor)
            if temperature_c is None
            else temperature_c,
            sm_clock_mhz=ask(float, "nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            mem_clock_mhz=ask(float, "nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_MEM),
            throttle_reasons=ask(throttle_words, "nvmlDeviceGetCurrentClocksThrottleReasons")
            if reasons is None
            else reasons,
        )
        if not self._is_unified:
            memory = ask(
                lambda info: (info.used, info.total), "nvmlDeviceGetMemoryInfo", of=self._part
            )
        elif sample.blank:
            return sample  # the machine's memory says nothing of a driver that died
        else:
            machine = psutil.virtual_memory()
            # The page cache, which can be reclaimed, does not count as used.
            memory = machine.total - machine.available, machine.total
        if memory is None:
            return sample
        used, total = memory
        return replace(sample, mem_used_gib=used / _GIB, mem_total_gib=total / _GIB)

    def memory(self) -> DeviceMemory | None:
        """See :meth:`Telemetry.memory`."""
        processes = self._ask(
            _gib_by_process, "nvmlDeviceGetComputeRunningProcesses", of=self._part
        )
        used_gib = None
        if not self._is_unified:
            used_gib = self._ask(
                lambda info: info.used / _GIB, "nvmlDeviceGetMemoryInfo", of=self._part
            )
        if processes is None and used_gib is None:
            return None
        return DeviceMemory(used_gib, processes or {})

    def close(self) -> None:
        """See :meth:`Telemetry.close`."""
        with suppress(self._nvml.NVMLError):  # a driver that died has nothing to shut down
            self._nvml.nvmlShutdown()

    def _ask(
        self, convert: Callable[[Any], Any], function: str, *arguments: int, of: Any = None
    ) -> Any:
        """Return the converted answer of one of NVML's functions; None if there is none."""
        handle = self._device if of is None else of
        try:
            return convert(getattr(self._nvml, function)(handle, *arguments))
        except (self._nvml.NVMLError, AttributeError):  # an older pynvml lacks newer functions
            return None


def _gib_by_process(processes: list[Any]) -> dict[int, float]:
    """Return the memory of each process whose share the driver tells."""
    known = [(one.pid, one.usedGpuMemory) for one in processes if one.usedGpuMemory is not None]
    return {pid: used / _GIB for pid, used in known}


def throttle_words(bits: int) -> tuple[str, ...]:
    """Return NVML's clocks event reasons as words; a bit without a name keeps its number."""
    set_bits = (1 << place for place in range(bits.bit_length()) if bits >> place & 1)
    return tuple(_THROTTLE_WORDS.get(bit, f"reason_{bit:#x}") for bit in set_bits)
