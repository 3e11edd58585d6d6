"""Test whether a run's levels are those of a sound run, with one interim analysis per window.

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

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from funnel.forecast.robust_fit import Array
from funnel.forecast.sound_runs import SoundRuns

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
class Analyses:
    """Windows of the log, one interim analysis after each."""

    tokens: Array
    """Mean tokens of each window, ``(W,)``."""
    error: Array
    """Standard error of each window's level, ``(W,)``."""
    total_tokens: float


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
        self, sound: SoundRuns, analyses: Analyses, log_middle: Callable[[Array], Array]
    ) -> None:
        """Derive the thresholds from draws of sound runs.

        :param log_middle: function of tokens: the logarithm of the forecast's middle.
        """
        self.analyses = analyses
        self.log_middle = log_middle
        covariance_WW: Array = sound.covariance(analyses.tokens, analyses.error)
        self._root_WW = np.linalg.cholesky(covariance_WW + 1e-10 * np.eye(len(covariance_WW)))
        # Standard deviation of the difference between neighboring windows of a sound run.
        self._apart = float(np.sqrt(np.mean(analyses.error**2) + (0.5 * sound.wiggle) ** 2))
        self._kinds = [self._whitened(np.array(kind)) for kind in self._faults()]
        draws_RW = sound.draw(analyses.tokens, analyses.error, DRAWS, np.random.default_rng(0))
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
        best = (-np.inf, 0, 0)
        for number, along_KRW in enumerate(along):
            score = lasting(along_KRW.max(axis=0))[0, analysis] / self.thresholds[number]
            fault = int(along_KRW[:, 0, analysis - SPIKE].argmax())
            best = max(best, (float(score), number, fault))
        kind = KINDS[best[1]]
        # Candidate stops and rises start at every _EVERY-th window.
        since = best[2] * _EVERY if kind in {"stop", "rise"} else analysis - SPIKE - LASTING + 1
        return Alarm(kind=kind, analysis=analysis, since=min(since, analysis))

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
        over_RW: NDArray[np.bool_] | None = None
        for along_KRW, threshold in zip(kinds, self.thresholds, strict=True):
            above_RW = lasting(along_KRW.max(axis=0)) > threshold
            over_RW = above_RW if over_RW is None else over_RW | above_RW
        assert over_RW is not None
        first: Array = np.where(over_RW.any(axis=1), over_RW.argmax(axis=1), over_RW.shape[1])
        return first

    def _faults(self) -> Iterator[list[Array]]:
        """Yield, for each of KINDS, the changes of the levels by its candidate faults."""
        tokens_W = self.analyses.tokens
        log_middle_W = self.log_middle(tokens_W)
        count = len(tokens_W)
        drift_W = (tokens_W - tokens_W[0]) / self.analyses.total_tokens + 1e-6
        starts = range(0, count - 1, _EVERY)
        after = [np.arange(count) > start for start in starts]
        yield [np.ones(count), -np.ones(count)]
        yield [drift_W, -drift_W]
        yield [
            np.where(later_W, np.maximum(log_middle_W[start] - log_middle_W, 0.0), 0.0)
            for start, later_W in zip(starts, after, strict=True)
        ]
        yield [later_W.astype(np.float64) for later_W in after]

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
