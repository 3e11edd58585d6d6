"""Record what the device does during training: power, energy, clocks, temperature, memory.

A :class:`Telemetry` answers one question, ``sample()``. The :class:`Sampler` asks it every two
seconds while a campaign works, and :func:`metering` adds to a trial's result what it used of the
device.
"""

from trainer.telemetry.nvml import choose_telemetry
from trainer.telemetry.sample import NoTelemetry, Sample, Telemetry
from trainer.telemetry.sampler import Sampler, metering
from trainer.telemetry.summary import DeviceUse, MeanAndPeak, TelemetrySummary

__all__ = [
    "DeviceUse",
    "MeanAndPeak",
    "NoTelemetry",
    "Sample",
    "Sampler",
    "Telemetry",
    "TelemetrySummary",
    "choose_telemetry",
    "metering",
]
