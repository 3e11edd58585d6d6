"""Divide a log into windows, the same for the power stated in a plan and for the comparison.

A window covers half a percent of the run up to a tenth of it, and one percent afterward. Windows
are merged until each has ``LEAST_POINTS`` losses. They are fixed places in the run, not shares of
the log, so a longer log has the windows of a shorter one and more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from funnel.forecast.departures import LEAST_POINTS
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
