"""Fit a line to measured peaks: ``peak_gib = fixed_gib + per_token_mib × tokens / 1024``."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import linear_regression

from autoresearch.errors import EnvelopeError
from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, Positive, PositiveInt
from trainer.envelope.points import EnvelopePoint

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
