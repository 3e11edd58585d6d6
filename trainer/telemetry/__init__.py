"""What the device does while it trains: power, energy, clocks, temperature, memory.

A :class:`Telemetry` answers one question, ``sample()``. The :class:`Sampler` asks it every two
seconds for as long as a campaign works, and :func:`begin_metering` gives a trial the energy
that its interval took.
"""

from trainer.telemetry.choice import choose_telemetry
from trainer.telemetry.metered import Meter, begin_metering
from trainer.telemetry.sample import NoTelemetry, Sample, Telemetry, TelemetryLost
from trainer.telemetry.sampler import Sampler
from trainer.telemetry.summary import MeanAndPeak, TelemetrySummary

__all__ = [
    "MeanAndPeak",
    "Meter",
    "NoTelemetry",
    "Sample",
    "Sampler",
    "Telemetry",
    "TelemetryLost",
    "TelemetrySummary",
    "begin_metering",
    "choose_telemetry",
]
