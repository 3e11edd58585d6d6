"""The telemetry of a device, as this environment numbers its GPUs."""

from __future__ import annotations

from agent.settings.environment import CudaEnvironment
from trainer.telemetry import NoTelemetry, Telemetry, choose_telemetry


def device_telemetry(device: str, places: int = 1, *, here: bool = True) -> Telemetry:
    """That of ``cpu``, ``cuda`` or ``cuda:N``; never fails.

    :param places: trials at once. Of several GPUs one meter would tell a part as if it were all,
        so none is asked.
    :param here: whether they run on this machine.
    """
    if not here:
        return NoTelemetry("trials run on the nodes of a cluster")
    if places > 1 and device != "cpu":
        return NoTelemetry(f"{places} GPUs are at work, and one meter does not speak for them")
    cuda = CudaEnvironment()
    return choose_telemetry(
        device,
        visible_devices=cuda.cuda_visible_devices,
        device_order=cuda.cuda_device_order,
    )
