"""Model how a sound run may differ from its forecast.

There are three differences from the middle, all of the log loss and hence relative:

- The ladder's uncertainty: smooth ``modes`` over the forecast's points, each drawn once per run
  from Student's t, because few rungs determine their size.
- A ``wiggle`` that no law describes. It is correlated over some tenths of the logarithm of tokens.
- The noise of single losses, which is correlated between neighbors.

The forecast's band, the thresholds of a comparison and its stated power all use the same draws, so
they are consistent.
"""

from collections.abc import Sequence

import numpy as np

from autoresearch.values import Finite, Frozen, NonNegative, Positive
from funnel.forecast.robust_fit import Array

WIGGLE_LENGTHS = (0.5, 0.1)
"""Correlation lengths of the wiggle, in ln tokens; the second part has half the sd of the first."""
LEAST_WIGGLE = 0.002
"""Least relative sd of the wiggle: long runs vary by as much with the order of their text."""


class SoundRuns(Frozen):
    """The distribution of sound runs about the forecast's middle."""

    log_tokens: tuple[Finite, ...]
    """Natural logarithms of the tokens at the forecast's points, ``(P,)``."""
    modes: tuple[tuple[Finite, ...], ...]
    """One standard deviation of each mode, ``(M, P)``."""
    freedom: Positive
    """Degrees of freedom of Student's t."""
    wiggle: NonNegative
    """Standard deviation of the wiggle."""
    noise: NonNegative
    """Standard deviation of one logged loss."""
    correlation: NonNegative
    """Correlation of successive logged losses."""

    def modes_at(self, tokens_W: Array) -> Array:
        """Return the modes at these tokens, ``(M, W)``."""
        place_W = np.log(tokens_W)
        modes = [np.interp(place_W, self.log_tokens, mode) for mode in self.modes]
        return np.array(modes).reshape(len(self.modes), len(tokens_W))

    def wiggle_covariance(self, tokens_W: Array) -> Array:
        """Return the covariance of the wiggle at these tokens, ``(W, W)``."""
        place_W = np.log(tokens_W)
        apart_WW = np.abs(place_W[:, None] - place_W)
        covariance_WW: Array = np.zeros_like(apart_WW)
        for length, share in zip(WIGGLE_LENGTHS, (1.0, 0.5), strict=True):
            covariance_WW += (self.wiggle * share) ** 2 * np.exp(-apart_WW / length)
        return covariance_WW

    def covariance(self, tokens_W: Array, error_W: Array) -> Array:
        """Return the covariance of levels with these standard errors, ``(W, W)``."""
        modes_MW = self.modes_at(tokens_W)
        covariance: Array = (
            modes_MW.T @ modes_MW + self.wiggle_covariance(tokens_W) + np.diag(error_W**2)
        )
        return covariance

    def draw(self, tokens_W: Array, error_W: Array, count: int, rng: np.random.Generator) -> Array:
        """Return levels of drawn sound runs relative to the middle, ``(count, W)``."""
        modes_MW = self.modes_at(tokens_W)
        scale_R = np.sqrt(self.freedom / rng.chisquare(self.freedom, count))
        # Scale Student's t to the standard deviation of the modes.
        scale_R *= np.sqrt(max(self.freedom - 2, 0.5) / self.freedom)
        by_mode_RM = rng.standard_normal((count, len(modes_MW))) * scale_R[:, None]
        small = 1e-9 * np.eye(len(tokens_W))
        root_WW = np.linalg.cholesky(self.wiggle_covariance(tokens_W) + small)
        levels: Array = by_mode_RM @ modes_MW
        levels += rng.standard_normal((count, len(tokens_W))) @ root_WW.T
        levels += rng.standard_normal((count, len(tokens_W))) * error_W
        return levels


def median_error(noise: float, correlation: float, points_W: Array) -> Array:
    """Return the standard error of the median of successive values of an AR(1) process."""
    shared = (1 + correlation) / (1 - correlation)
    error: Array = np.sqrt(np.pi / 2) * noise * np.sqrt(np.minimum(shared, points_W) / points_W)
    return error


def principal_modes(log_loss_RP: Array, most: int = 8) -> tuple[tuple[float, ...], ...]:
    """Return the largest modes by which draws of a curve differ, ``(M, P)``, one sd of each."""
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
    """Return the sd of a series about its trend, and the correlation of neighboring values.

    The trend is a running median.
    """
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
    # Subtracting the trend removes a part of the correlation.
    return sd, float(np.clip(seen + 2 / width, 0.0, 0.9))
