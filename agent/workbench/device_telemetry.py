"""Choose a device's telemetry, with the GPU numbering of this environment."""

from __future__ import annotations

from agent.settings.environment import CudaEnvironment
from trainer.telemetry import NoTelemetry, Telemetry, choose_telemetry


def device_telemetry(device: str, places: int = 1, *, here: bool = True) -> Telemetry:
    """Return the telemetry of ``cpu``, ``cuda`` or ``cuda:N``; never fail.

    :param places: number of concurrent trials. With several GPUs nothing is sampled, because one
        meter would report one GPU as if it were all.
    :param here: whether the trials run on this machine.
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
