"""The telemetry of a device, as this environment numbers its GPUs."""

from __future__ import annotations

from agent.settings.environment import CudaEnvironment
from trainer.telemetry import Telemetry, choose_telemetry


def device_telemetry(device: str) -> Telemetry:
    """That of ``cpu``, ``cuda`` or ``cuda:N``; never fails."""
    cuda = CudaEnvironment()
    return choose_telemetry(
        device,
        visible_devices=cuda.cuda_visible_devices,
        device_order=cuda.cuda_device_order,
    )
