"""Record what the device does during training: power, energy, clocks, temperature, memory.

A :class:`Telemetry` answers one question, ``sample()``. The :class:`Sampler` asks it every two
seconds while a campaign works, and :func:`begin_metering` adds to a trial's result the energy of
its interval.
"""

from trainer.telemetry.nvml import choose_telemetry
from trainer.telemetry.sample import NoTelemetry, Sample, Telemetry
from trainer.telemetry.sampler import Sampler, begin_metering
from trainer.telemetry.summary import MeanAndPeak, TelemetrySummary

__all__ = [
    "MeanAndPeak",
    "NoTelemetry",
    "Sample",
    "Sampler",
    "Telemetry",
    "TelemetrySummary",
    "begin_metering",
    "choose_telemetry",
]
