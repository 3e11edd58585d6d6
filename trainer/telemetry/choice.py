"""Choose the telemetry of a device string."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from trainer.telemetry.nvml import Nvml, NvmlTelemetry
from trainer.telemetry.sample import NoTelemetry, Telemetry


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
        if _order_matters(nvml, visible_devices, device_order):
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


def _order_matters(nvml: Nvml, visible_devices: str | None, device_order: str | None) -> bool:
    if device_order == "PCI_BUS_ID" or (visible_devices and not visible_devices[:1].isdecimal()):
        return False
    return len({nvml.nvmlDeviceGetName(handle) for handle in _all_handles(nvml)}) > 1


def _all_handles(nvml: Nvml) -> list[Any]:
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
