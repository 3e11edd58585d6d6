"""Compare a run's log with a forecast from a ladder, and list the faults caught so far.

The plan's stated power and the comparison divide a log into the same windows. A window covers half
a percent of the run up to a tenth of it, and one percent afterward. Windows are merged until each
has ``LEAST_POINTS`` losses. They are fixed places in the run, not shares of the log, so a longer
log has the windows of a shorter one and more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from funnel.forecast.band import Forecast
from funnel.forecast.cloud_log import CloudPoint
from funnel.forecast.departures import LEAST_POINTS, Departure, Side, Window, window_of
from funnel.forecast.ladder.basis import EARLY, Catch, LadderBasis, catches, listed_faults
from funnel.forecast.ladder.sound_runs import median_error, noise_of
from funnel.forecast.ladder.watch import LASTING, SPIKE, Analyses, Watch
from funnel.forecast.power_law import Array

FINE, COARSE = 0.005, 0.01
FINE_UNTIL = 0.1
PLANNED_POINTS = 200
"""Largest number of losses per window that a plan assumes; more make no difference."""


def edges(first: float) -> Array:
    """Return the boundaries of the windows, as shares of a run, beginning with ``first``."""
    fine = np.arange(0.0, FINE_UNTIL - FINE / 2, FINE)
    coarse = np.arange(FINE_UNTIL, 1.0 + COARSE / 2, COARSE)
    ends = np.concatenate([fine, coarse])
    return np.concatenate([[first], ends[ends > first + FINE / 2]])


def cut(tokens_P: Array, first: float, total_tokens: float) -> list[NDArray[np.intp]]:
    """Return the indices of the losses in each window.

    The last window may be incomplete, but has enough losses.
    """
    share_P = tokens_P / total_tokens
    place_P = np.digitize(share_P, edges(first)) - 1
    windows: list[NDArray[np.intp]] = []
    held: list[int] = []
    for place in range(len(edges(first)) - 1):
        held.extend(np.flatnonzero(place_P == place).tolist())
        if len(held) >= LEAST_POINTS:
            windows.append(np.array(held))
            held = []
    last = np.flatnonzero(place_P == len(edges(first)) - 1)
    if len(last) and windows:
        windows[-1] = np.concatenate([windows[-1], last])
    return windows


def planned(first: float, total_tokens: float, steps: int) -> tuple[Array, Array]:
    """Return the windows of a whole run that logs every step: mean tokens and number of losses."""
    step_P: Array = np.arange(1.0, min(steps, 20_000) + 1) * max(1.0, steps / 20_000)
    windows = cut(step_P, first, float(steps))
    tokens_W = np.array([float(step_P[w].mean()) for w in windows]) / steps * total_tokens
    per_point = max(1.0, steps / 20_000)
    points_W = np.array([float(min(len(w) * per_point, PLANNED_POINTS)) for w in windows])
    return tokens_W, points_W


FEWEST_WINDOWS = LASTING + SPIKE
_SIDES: dict[str, tuple[Side, Side]] = {
    "level": ("above", "below"),
    "drift": ("above", "below"),
    "stop": ("stopped", "stopped"),
    "rise": ("rising", "rising"),
}


@dataclass(frozen=True)
class LadderComparison:
    """A log in windows, with one interim analysis per window."""

    forecast: Forecast
    basis: LadderBasis
    points: tuple[CloudPoint, ...]
    """Finite losses within the forecast."""
    factor: float
    """Factor from the log's unit to bits per byte."""

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        return tuple(
            window_of([self.points[i] for i in part], self.forecast, self.factor)
            for part in self._parts
        )

    @cached_property
    def departure(self) -> Departure | None:
        """The first alarm, as a departure; None if there is none."""
        alarm = None if self._watch is None else self._watch.first_alarm(self._levels)
        if alarm is None:
            return None
        windows: Sequence[Window] = self.windows
        since = windows[alarm.since]
        level_W = self._levels[alarm.since : alarm.analysis + 1]
        worst = float(level_W[np.argmax(np.abs(level_W))])
        is_high = float(self._levels[alarm.analysis]) >= 0
        return Departure(
            side=_SIDES[alarm.kind][0 if is_high else 1],
            step=since.step,
            tokens=since.tokens,
            worst=float(np.expm1(worst)),
            seen_at_step=windows[alarm.analysis].step,
        )

    @cached_property
    def caught(self) -> tuple[Catch, ...]:
        """The needed faults, and when a log with these windows and noise would show each."""
        if self._watch is None:
            return ()
        needed = [f for f in listed_faults(self.basis.wrong_size) if f.is_needed]
        return catches(self._watch, needed)

    @property
    def not_yet(self) -> tuple[Catch, ...]:
        """Needed faults that may be present in the log and would not be caught yet.

        A run that stopped learning at the share EARLY of its steps always counts as present:
        nothing is confirmed before the log could show it.
        """
        reached = self.windows[-1].tokens if self.windows else 0
        early = EARLY * self.basis.total_tokens
        return tuple(
            catch
            for catch in self.caught
            if catch.by_tokens is None
            and (catch.from_tokens < reached or catch.from_tokens <= early)
        )

    @cached_property
    def _parts(self) -> list[NDArray[np.intp]]:
        tokens_P = np.array([point.tokens for point in self.points], dtype=np.float64)
        if len(tokens_P) == 0:
            return []
        first = self.forecast.points[0].tokens / self.basis.total_tokens
        return cut(tokens_P, first, float(self.basis.total_tokens))

    @cached_property
    def _residuals(self) -> Array:
        loss_P = np.array([point.loss for point in self.points]) * self.factor
        tokens_P = np.array([float(point.tokens) for point in self.points])
        residual: Array = np.log(np.maximum(loss_P, 1e-9)) - self.forecast.log_middle(tokens_P)
        return residual

    @cached_property
    def _levels(self) -> Array:
        return np.array([float(np.median(self._residuals[part])) for part in self._parts])

    @cached_property
    def _watch(self) -> Watch | None:
        if len(self._parts) < FEWEST_WINDOWS:
            return None
        tokens_P = np.array([float(point.tokens) for point in self.points])
        noise, correlation = noise_of(self._residuals)
        analyses = Analyses(
            tokens=np.array([float(tokens_P[part].mean()) for part in self._parts]),
            error=median_error(
                noise, correlation, np.array([float(len(part)) for part in self._parts])
            ),
            total_tokens=float(self.basis.total_tokens),
        )
        return Watch(self.basis.sound, analyses, self.forecast.log_middle)
