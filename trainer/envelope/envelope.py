"""Define a machine's envelope: its points, their fitted lines, and its file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from autoresearch.errors import EnvelopeError
from autoresearch.files import read_given, replace_file, writing
from autoresearch.values import Finite, Frozen, NonNegative, explain
from trainer.envelope.fit import MemoryFit, fit
from trainer.envelope.points import EnvelopePoint, EnvelopeSettings
from trainer.memory.estimate import DeviceLimit
from trainer.telemetry import TelemetrySummary

ENVELOPE_FILE = "envelope.json"


class DeviceUse(Frozen):
    """Device state during the sweep; None if unknown."""

    gpu_util_mean_pct: NonNegative | None = None
    gpu_util_peak_pct: NonNegative | None = None
    power_mean_w: NonNegative | None = None
    power_peak_w: NonNegative | None = None
    temperature_mean_c: Finite | None = None
    temperature_peak_c: Finite | None = None

    @classmethod
    def of(cls, seen: TelemetrySummary) -> Self:
        """Return the three quantities that an envelope reports."""
        util, power, temperature = seen.gpu_util_pct, seen.power_w, seen.temperature_c
        return cls(
            gpu_util_mean_pct=util.mean if util else None,
            gpu_util_peak_pct=util.peak if util else None,
            power_mean_w=power.mean if power else None,
            power_peak_w=power.peak if power else None,
            temperature_mean_c=temperature.mean if temperature else None,
            temperature_peak_c=temperature.peak if temperature else None,
        )


class Envelope(Frozen):
    """All results of a sweep."""

    settings: EnvelopeSettings
    limit: DeviceLimit
    points: tuple[EnvelopePoint, ...]
    fits: tuple[MemoryFit, ...]
    """One for each precision whose points allow it."""
    notes: tuple[str, ...]
    """Reasons why a precision has no fit, and points that contradict one."""
    use: DeviceUse | None = None
    """None if nothing monitored the device."""

    @classmethod
    def of(
        cls,
        settings: EnvelopeSettings,
        limit: DeviceLimit,
        points: Sequence[EnvelopePoint],
        use: DeviceUse | None = None,
    ) -> Self:
        """Fit what can be fitted, and note what cannot."""
        fits: list[MemoryFit] = []
        notes: list[str] = []
        for precision in dict.fromkeys(point.precision for point in points):
            try:
                fits.append(fit(points, precision))
            except EnvelopeError as error:
                notes.append(str(error))
        notes += _surprises(points, fits, limit)
        return cls(
            settings=settings,
            limit=limit,
            points=tuple(points),
            fits=tuple(fits),
            notes=tuple(notes),
            use=use,
        )

    def fit_of(self, precision: str) -> MemoryFit | None:
        """Return the line of this precision, if there is one."""
        return next((one for one in self.fits if one.precision == precision), None)

    def save(self, path: Path) -> None:
        """Write the envelope in one step.

        :raises MachineryError: if the disk refuses.
        """
        with writing(path, instead="choose another folder"):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, self.model_dump_json(indent=2) + "\n", durable=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read an envelope.

        :raises EnvelopeError: if it is missing or invalid.
        """
        try:
            return cls.model_validate_json(read_given(path))
        except ValidationError as error:
            raise EnvelopeError(
                f"{path} is not an envelope: {explain(error)}; delete it, or measure it again with:"
                " autoresearch envelope"
            ) from error
        except OSError as error:
            raise EnvelopeError(
                f"cannot read {path} ({error.strerror}); measure it with: autoresearch envelope"
            ) from error


def _surprises(
    points: Sequence[EnvelopePoint], fits: Sequence[MemoryFit], limit: DeviceLimit
) -> list[str]:
    """Return notes on points that ran out of memory although the line says that they fit."""
    notes = []
    lines = {one.precision: one for one in fits}
    for point in points:
        line = lines.get(point.precision)
        if point.status == "oom" and line is not None:
            predicted_gib = line.predict_gib(point.tokens_per_step)
            if predicted_gib <= limit.gib:
                notes.append(
                    f"{point.cell} ran out of memory where the fit says {predicted_gib:.2f} GiB of"
                    f" {limit.gib:.2f}: something else uses this memory, or a limit is set"
                )
    return notes
