"""Model how a sound run may differ from its forecast.

Three differences from the middle, all in logarithms and hence relative:

- the ladder's uncertainty, as smooth ``modes`` over the forecast's points, each drawn once per run
(Student's t: their size is known from a few rungs);

- a ``wiggle`` that no law describes: neighboring stretches of a curve share it, over some tenths of
the logarithm of tokens;

- the noise of single losses, partly shared by neighbors.

The forecast's band, the thresholds of a comparison and its stated power all come from draws of
these, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoresearch.values import Finite, Frozen, NonNegative, Positive
from funnel.forecast.power_law import Array

WIGGLE_LENGTHS = (0.5, 0.1)
"""Lengths in ln tokens over which a wiggle is shared; the second has half the sd of the first."""
LEAST_WIGGLE = 0.002
"""Relative size. Long runs vary by as much with the order of their text."""


class SoundRuns(Frozen):
    """The draws, at the forecast's points."""

    log_tokens: tuple[Finite, ...]
    modes: tuple[tuple[Finite, ...], ...]
    """``(M, P)``: one sd of each."""
    freedom: Positive
    """Degrees of freedom of Student's t."""
    wiggle: NonNegative
    """Standard deviation of the wiggle."""
    noise: NonNegative
    """Sd of one logged loss."""
    correlation: NonNegative
    """Correlation of successive logged losses."""

    def modes_at(self, tokens_W: Array) -> Array:
        """``(M, W)``"""
        place_W = np.log(tokens_W)
        modes = [np.interp(place_W, self.log_tokens, mode) for mode in self.modes]
        return np.array(modes).reshape(len(self.modes), len(tokens_W))

    def wiggle_covariance(self, tokens_W: Array) -> Array:
        """``(W, W)``"""
        place_W = np.log(tokens_W)
        apart_WW = np.abs(place_W[:, None] - place_W)
        covariance_WW: Array = np.zeros_like(apart_WW)
        for length, share in zip(WIGGLE_LENGTHS, (1.0, 0.5), strict=True):
            covariance_WW += (self.wiggle * share) ** 2 * np.exp(-apart_WW / length)
        return covariance_WW

    def covariance(self, tokens_W: Array, error_W: Array) -> Array:
        """``(W, W)`` of levels with these standard errors."""
        modes_MW = self.modes_at(tokens_W)
        covariance: Array = (
            modes_MW.T @ modes_MW + self.wiggle_covariance(tokens_W) + np.diag(error_W**2)
        )
        return covariance

    def draw(self, tokens_W: Array, error_W: Array, count: int, rng: np.random.Generator) -> Array:
        """``(count, W)``: levels of sound runs, over the middle."""
        modes_MW = self.modes_at(tokens_W)
        scale_R = np.sqrt(self.freedom / rng.chisquare(self.freedom, count))
        # A t of this freedom with the sd that the modes have.
        scale_R *= np.sqrt(max(self.freedom - 2, 0.5) / self.freedom)
        by_mode_RM = rng.standard_normal((count, len(modes_MW))) * scale_R[:, None]
        small = 1e-9 * np.eye(len(tokens_W))
        root_WW = np.linalg.cholesky(self.wiggle_covariance(tokens_W) + small)
        levels: Array = by_mode_RM @ modes_MW
        levels += rng.standard_normal((count, len(tokens_W))) @ root_WW.T
        levels += rng.standard_normal((count, len(tokens_W))) * error_W
        return levels

    def level_error(self, points_W: Array) -> Array:
        """Standard error of the median of so many neighbouring losses."""
        return median_error(self.noise, self.correlation, points_W)


def median_error(noise: float, correlation: float, points_W: Array) -> Array:
    """Return the error of the median of neighboring values that share noise (an AR(1) process)."""
    shared = (1 + correlation) / (1 - correlation)
    error: Array = np.sqrt(np.pi / 2) * noise * np.sqrt(np.minimum(shared, points_W) / points_W)
    return error


def principal_modes(log_loss_RP: Array, most: int = 8) -> tuple[tuple[float, ...], ...]:
    """The few smooth modes that draws of a curve differ by: ``(M, P)``, one sd of each."""
    centred_RP = log_loss_RP - log_loss_RP.mean(axis=0)
    _, size_M, mode_MP = np.linalg.svd(
        centred_RP / np.sqrt(len(centred_RP) - 1), full_matrices=False
    )
    kept = min(most, len(size_M))
    return tuple(
        tuple(float(v) for v in size * mode)
        for size, mode in zip(size_M[:kept], mode_MP[:kept], strict=True)
    )


def noise_of(log_residual: Sequence[float] | Array) -> tuple[float, float]:
    """Sd and neighbours' correlation of a series about its trend: medians of a few neighbours are
    taken for the trend."""
    series = np.asarray(log_residual, dtype=np.float64)
    width = min(21, max(3, len(series) // 4)) // 2 * 2 + 1
    padded = np.pad(series, width // 2, mode="edge")
    trend = np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)
    rest = series - trend
    most = 4 * float(np.median(np.abs(rest))) / 0.6745 + 1e-12
    rest = np.clip(rest, -most, most)
    sd = float(rest.std()) * np.sqrt(width / (width - 1))
    if len(rest) < 8 or sd == 0:
        return sd, 0.0
    seen = float((rest[1:] * rest[:-1]).mean() / max(float((rest**2).mean()), 1e-30))
    # The trend takes a part of what neighbours share with it.
    return sd, float(np.clip(seen + 2 / width, 0.0, 0.9))
