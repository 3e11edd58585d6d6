"""Test whether a run's levels are those of a sound run, with one interim analysis per window.

A sound run differs from the forecast's middle in three ways, all of the log loss and so relative:

- The ladder's uncertainty: smooth ``modes`` over the forecast's points, each drawn once per run
  from Student's t, because few rungs determine their size.
- A ``wiggle`` that no law describes. It is correlated over some tenths of the logarithm of tokens.
- The noise of single losses, which is correlated between neighbors.

The forecast's band, the thresholds of a comparison and its stated power all use the same draws, so
they are consistent.

The levels relative to the forecast's middle are compared with the effect of each fault. The faults
are a level too high or too low, a slow drift, and a loss that stops falling or rises at some
window. The score of a fault is that of generalized least squares, ``f' S^-1 r / sqrt(f' S^-1 f)``,
with ``S`` the covariance of sound runs. A level of which the ladder is uncertain counts little; a
curve that stops following the forecast counts at once. The Cholesky factor of ``S`` is sequential,
so one pass gives the scores at every analysis.

Each kind of fault has a threshold, which a share ``FALSE_ALARMS`` of sound runs exceeds at some
analysis of the whole run. An alarm is ``LASTING`` successive analyses above a threshold. Before the
test, one or two windows that differ from their neighbors (a spike that recovers) are set to the
neighbors' level. An analysis therefore tests the window ``SPIKE`` before it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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


FALSE_ALARMS = 0.003
"""False alarm rate of a sound run over all its analyses, for each of the four kinds of fault.

The four rates sum to less than the allowed 2 %, because real runs differ from draws.
"""
Kind = Literal["level", "drift", "stop", "rise"]
KINDS: tuple[Kind, ...] = ("level", "drift", "stop", "rise")
LASTING = 3
SPIKE = 2
"""Number of windows that a spike may last."""
_SPIKE_Z = 5.0
_EVERY = 6
"""Number of windows between candidate starts of a stop or a rise."""
DRAWS = 1000


@dataclass(frozen=True, slots=True)
class Alarm:
    """The first interim analysis that rejects the hypothesis of a sound run."""

    kind: Kind
    """Kind of fault that the run resembles most."""
    analysis: int
    """Index of the analysis's window."""
    since: int
    """Index of the window from which the fault would be present."""


class Watch:
    """Sequential test of runs with these windows."""

    def __init__(
        self,
        sound: SoundRuns,
        tokens_W: Array,
        error_W: Array,
        total_tokens: float,
        log_middle: Callable[[Array], Array],
    ) -> None:
        """Derive the thresholds from draws of sound runs.

        :param tokens_W: mean tokens of each window.
        :param error_W: standard error of each window's level.
        :param log_middle: function of tokens: the logarithm of the forecast's middle.
        """
        self.tokens_W = tokens_W
        self.total_tokens = total_tokens
        self.log_middle = log_middle
        covariance_WW = sound.covariance(tokens_W, error_W)
        self._root_WW = np.linalg.cholesky(covariance_WW + 1e-10 * np.eye(len(covariance_WW)))
        # Standard deviation of the difference between neighboring windows of a sound run.
        self._apart = float(np.sqrt(np.mean(error_W**2) + (0.5 * sound.wiggle) ** 2))
        self._kinds = [self._whitened(np.array(kind)) for kind in self._faults()]
        draws_RW = sound.draw(tokens_W, error_W, DRAWS, np.random.default_rng(0))
        self._sound = [self._along(self._calm(draws_RW), kind_KW) for kind_KW in self._kinds]
        self.thresholds = [
            float(np.quantile(lasting(along_KRW.max(axis=0)).max(axis=1), 1 - FALSE_ALARMS))
            for along_KRW in self._sound
        ]

    def first_alarm(self, level_W: Array) -> Alarm | None:
        """Return the first alarm of one run; None if there is none."""
        calm_RW = self._calm(level_W[None])
        along = [self._along(calm_RW, kind_KW) for kind_KW in self._kinds]
        analysis = int(self._first(along)[0])
        if analysis == len(level_W):
            return None
        scores = [
            float(lasting(along_KRW.max(axis=0))[0, analysis] / threshold)
            for along_KRW, threshold in zip(along, self.thresholds, strict=True)
        ]
        best = int(np.argmax(scores))
        since = analysis - SPIKE - LASTING + 1
        if KINDS[best] in {"stop", "rise"}:
            # Candidate stops and rises start at every _EVERY-th window.
            since = int(along[best][:, 0, analysis - SPIKE].argmax()) * _EVERY
        return Alarm(kind=KINDS[best], analysis=analysis, since=min(since, analysis))

    def alarms_with_fault(self, added_W: Array) -> Array:
        """Return the analysis at which each draw of a sound run with a fault added raises its first
        alarm, else W, ``(R,)``.

        :param added_W: the fault's change of each level.
        """
        return self._first(
            along_KRW + self._along(added_W[None], kind_KW)
            for along_KRW, kind_KW in zip(self._sound, self._kinds, strict=True)
        )

    def _first(self, kinds: Iterable[NDArray[np.float32]]) -> Array:
        over_RW = np.logical_or.reduce(
            [
                lasting(along_KRW.max(axis=0)) > threshold
                for along_KRW, threshold in zip(kinds, self.thresholds, strict=True)
            ]
        )
        first: Array = np.where(over_RW.any(axis=1), over_RW.argmax(axis=1), over_RW.shape[1])
        return first

    def _faults(self) -> Iterator[list[Array]]:
        """Yield, for each of KINDS, the changes of the levels by its candidate faults."""
        tokens_W = self.tokens_W
        log_middle_W = self.log_middle(tokens_W)
        count = len(tokens_W)
        drift_W = (tokens_W - tokens_W[0]) / self.total_tokens + 1e-6
        after = {start: np.arange(count) > start for start in range(0, count - 1, _EVERY)}
        yield [np.ones(count), -np.ones(count)]
        yield [drift_W, -drift_W]
        yield [
            np.where(later_W, np.maximum(log_middle_W[start] - log_middle_W, 0.0), 0.0)
            for start, later_W in after.items()
        ]
        yield [later_W.astype(np.float64) for later_W in after.values()]

    def _along(self, level_RW: Array, kind_KW: Array) -> NDArray[np.float32]:
        """Return the score of each fault of a kind at each analysis, ``(K, R, W)``."""
        whitened_RW = self._whitened(level_RW).astype(np.float32)
        length_KW = np.sqrt(np.cumsum(kind_KW**2, axis=1)) + 1e-9
        along_KRW: NDArray[np.float32] = np.empty((len(kind_KW), *level_RW.shape), dtype=np.float32)
        for number, fault_W in enumerate(kind_KW):
            along_KRW[number] = np.cumsum(whitened_RW * fault_W.astype(np.float32), axis=1)
            along_KRW[number] /= length_KW[number].astype(np.float32)
        return along_KRW

    def _whitened(self, level_RW: Array) -> Array:
        whitened: Array = np.linalg.solve(self._root_WW, level_RW.T).T
        return whitened

    def _calm(self, level_RW: Array) -> Array:
        width = 2 * SPIKE + 1
        if level_RW.shape[1] < width:
            return level_RW
        windows = np.lib.stride_tricks.sliding_window_view(level_RW, width, axis=1)
        calm_RW = level_RW.copy()
        middle_RW = np.median(windows, axis=2)
        inner_RW = level_RW[:, SPIKE:-SPIKE]
        out_RW = np.abs(inner_RW - middle_RW) > _SPIKE_Z * self._apart
        calm_RW[:, SPIKE:-SPIKE] = np.where(out_RW, middle_RW, inner_RW)
        return calm_RW


def lasting(score_RW: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the lowest of LASTING successive scores at each analysis, ``(R, W)``.

    The last of these scores is SPIKE windows old, because only then can a spike be recognized.
    """
    low_RW = np.full_like(score_RW, -np.inf)
    first = LASTING - 1 + SPIKE
    analyses = score_RW.shape[1] - first
    if analyses > 0:
        in_a_row = [score_RW[:, place : place + analyses] for place in range(LASTING)]
        low_RW[:, first:] = np.minimum.reduce(in_a_row)
    return low_RW
