"""Define a machine's envelope: its points, the lines fitted to their peaks, and its file.

A line is ``peak_gib = fixed_gib + per_token_mib × tokens / 1024``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import linear_regression
from typing import Self

from pydantic import ValidationError

from autoresearch.errors import EnvelopeError
from autoresearch.files import read_given, replace_file, writing
from autoresearch.values import (
    Finite,
    Frozen,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    explain,
)
from trainer.envelope.points import EnvelopePoint, EnvelopeSettings
from trainer.memory.estimate import DeviceLimit
from trainer.telemetry import TelemetrySummary

MIB_PER_GIB = 1024


class Residual(Frozen):
    """Distance of a measured peak from the line."""

    batch_size: PositiveInt
    seq_len: PositiveInt
    measured_gib: NonNegative
    error_gib: Finite
    """Measured minus fitted."""


class MemoryFit(Frozen):
    """Least-squares line through the peaks of one precision."""

    precision: str
    fixed_gib: NonNegative
    """Memory independent of a step's tokens: weights, optimizer state, workspaces."""
    per_token_mib: Positive
    """Memory for each token of a step: activations and logits."""
    residuals: tuple[Residual, ...]
    max_error_gib: NonNegative
    """The largest absolute residual."""

    def predict_gib(self, tokens_per_step: float) -> float:
        """Return the line's value."""
        return self.fixed_gib + self.per_token_mib * tokens_per_step / MIB_PER_GIB

    def most_tokens(self, limit_gib: float) -> NonNegativeInt:
        """Return the most tokens of a step within ``limit_gib``; 0 if none fits."""
        return max(0, int((limit_gib - self.fixed_gib) * MIB_PER_GIB / self.per_token_mib))


def fit(points: Sequence[EnvelopePoint], precision: str) -> MemoryFit:
    """Fit the measured peaks of ``precision``, each point with equal weight.

    If the line would start below zero, the best one that starts at zero is used.

    :raises EnvelopeError: if fewer than two numbers of tokens have known peaks, or if the peaks do
        not grow with the tokens.
    """
    used = [p for p in points if p.precision == precision and p.status == "ok"]
    tokens = [float(point.tokens_per_step) for point in used]
    peaks_gib = [point.peak_mem_gib or 0.0 for point in used]
    if len(set(tokens)) < 2:
        raise EnvelopeError(
            f"the memory of {precision} cannot be fitted: {len(set(tokens))} number of tokens a"
            " step was measured, and a line needs 2; measure other batch sizes or sequence lengths"
        )
    slope, fixed_gib = linear_regression(tokens, peaks_gib)
    if fixed_gib < 0:
        slope, fixed_gib = linear_regression(tokens, peaks_gib, proportional=True)
    if slope <= 0:
        raise EnvelopeError(
            f"the memory of {precision} cannot be fitted: the peaks ({min(peaks_gib):.2f} to"
            f" {max(peaks_gib):.2f} GiB) do not grow with the tokens; measure larger batches"
        )
    errors_gib = [
        peak - (fixed_gib + slope * count) for count, peak in zip(tokens, peaks_gib, strict=True)
    ]
    return MemoryFit(
        precision=precision,
        fixed_gib=fixed_gib,
        per_token_mib=slope * MIB_PER_GIB,
        residuals=tuple(
            Residual(
                batch_size=point.batch_size,
                seq_len=point.seq_len,
                measured_gib=peak_gib,
                error_gib=error_gib,
            )
            for point, peak_gib, error_gib in zip(used, peaks_gib, errors_gib, strict=True)
        ),
        max_error_gib=max(map(abs, errors_gib)),
    )


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
    lines = {one.precision: one for one in fits}
    predicted = [
        (point, lines[point.precision].predict_gib(point.tokens_per_step))
        for point in points
        if point.status == "oom" and point.precision in lines
    ]
    return [
        f"{point.cell} ran out of memory where the fit says {predicted_gib:.2f} GiB of"
        f" {limit.gib:.2f}: something else uses this memory, or a limit is set"
        for point, predicted_gib in predicted
        if predicted_gib <= limit.gib
    ]
