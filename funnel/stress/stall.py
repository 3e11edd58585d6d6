"""Whether a run stopped learning at some step: two stories of its whole curve held side by side.

The sound one: the loss falls with progress by summed learning rate, ``A + B s^-b`` or ``A + B
exp(-r s)``, and with the rate itself (:mod:`funnel.forecast.ladder.schedule_shape` has the papers).
The other: the same power up to some step, and level from there. Both are fitted by least squares,
for every exponent of a grid and every step of another; the run stopped where the other story fits
better by more than noise allows.
A curve that is only nearly flat because its power law has come down is told by the sound story as
well, so it is none.

The slope of the last stretch alone (:func:`funnel.stress.detectors.plateau`) must bound what noise
hides in a few points; this one has all the points before to say how fast the loss should still
fall.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from funnel.stress.curve import Curve, Floats

EXPONENTS = np.geomspace(0.05, 2.0, 10)
RATES = np.geomspace(2.0, 40.0, 10)
"""Of ``exp(-r s)``, s the share of the progress made: a text whose end is soon reached."""
FROM_SHARE, TO_SHARE, PARTS = 0.1, 0.8, 29
"""Of the schedule: where a stop is looked for; later, the run has had its schedule."""
LEAST_GAIN = 12.0
"""By which twice the log likelihood must be better; of 400 sound runs none had as much."""
LEAST_FALL = 0.004
"""Of the loss: what a run that goes on would have gained since, to be worth a word."""
MOST_FALL = 0.3
"""Of the loss: a curve by which more was due was still in its first plunge, which says nothing of
what comes after."""
LEAST_AFTER = 8
"""Points."""
MOST_POINTS = 200
"""Of a curve: where it has more, means of neighbours stand for them."""
STILL_FALLING = 0.35
"""Of the fall that was due, a run that stopped shows less than this."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A stop."""

    step: int
    due: float
    """Nats that the loss should have fallen by since, to its end."""
    seen: float
    """Nats that it fell by."""
    gain: float


def find_stall(curve: Curve) -> Stall | None:
    """The stop that fits best, where it fits so much better than going on."""
    count = len(curve.step) - curve.begins
    if count < 2 * curve.wide:
        return None
    joined = -(-count // MOST_POINTS)
    progress, annealed, step, loss = (
        _means(series, joined)
        for series in (
            *_progress(curve),
            curve.step[curve.begins :].astype(np.float64),
            curve.loss[curve.begins :],
        )
    )
    sound = min(_fit(loss, fallen, annealed)[0] for fallen in _sound_ways(progress))
    # Points that share noise say less than their number.
    variance = max(2 / np.pi * curve.wide * curve.wide_se**2 / joined, 1e-12)
    best: Stall | None = None
    for share in np.linspace(FROM_SHARE, TO_SHARE, PARTS):
        stop = int(np.searchsorted(step, share * curve.steps))
        if stop < LEAST_AFTER or len(step) - stop < LEAST_AFTER:
            continue
        found = min(
            (_stopped(loss, progress**-b, annealed, stop) for b in EXPONENTS),
            key=lambda one: one[0],
        )
        gain = (sound - found[0]) / variance
        if gain < LEAST_GAIN or (best is not None and gain <= best.gain):
            continue
        stall = Stall(int(step[stop]), found[1], _fall(step[stop:], loss[stop:]), float(gain))
        level = float(np.median(loss[stop:]))
        worth_a_word = LEAST_FALL * level < stall.due < MOST_FALL * level
        if worth_a_word and stall.seen < STILL_FALLING * stall.due:
            best = stall
    return best


def _sound_ways(progress: Floats) -> Iterator[Floats]:
    """What may be left to fall of a run that goes on: by a power, or towards an end that it
    reaches, as small models do on small texts."""
    yield from (progress**-b for b in EXPONENTS)
    yield from (np.exp(-rate * progress) for rate in RATES)


def _progress(curve: Curve) -> tuple[Floats, Floats]:
    """Sums of learning rates, 1 at the end, and how far the rate is below its peak, 0 to 1."""
    rate = curve.rate / max(float(curve.rate.max()), 1e-30)
    sums = np.cumsum(rate * np.diff(curve.step, prepend=0))
    after_peak = np.maximum.accumulate(rate)
    return (sums / sums[-1])[curve.begins :], (after_peak - rate)[curve.begins :]


def _means(series: Floats, joined: int) -> Floats:
    """Of so many neighbours each; what is left over at the start is dropped."""
    rest = series[len(series) % joined :]
    means: Floats = rest.reshape(-1, joined).mean(axis=1)
    return means


def _fit(loss: Floats, fallen: Floats, annealed: Floats) -> tuple[float, Floats]:
    """Squares left, and the level, the height and what annealing gains; neither below zero."""
    columns = [np.ones_like(loss), fallen, -annealed]
    kept = [0, 1, 2] if float(annealed.max()) > 0 else [0, 1]
    coefficients = np.zeros(3)
    while True:
        matrix = np.stack([columns[k] for k in kept], axis=1)
        solved = np.linalg.lstsq(matrix, loss, rcond=None)[0]
        wrong = [k for k, value in zip(kept, solved, strict=True) if k > 0 and value < 0]
        if not wrong:
            break
        kept.remove(wrong[-1])
    coefficients[kept] = solved
    residual = loss - matrix @ solved
    return float(residual @ residual), coefficients


def _stopped(loss: Floats, fallen: Floats, annealed: Floats, stop: int) -> tuple[float, float]:
    """Squares left where nothing is learned from a point on, and what was due since."""
    held = np.minimum(np.arange(len(loss)), stop)
    squares, (_, height, gains) = _fit(loss, fallen[held], annealed[held])
    due = height * (fallen[stop] - fallen[-1]) + gains * (annealed[-1] - annealed[stop])
    return squares, float(due)


def _fall(step: Floats, loss: Floats) -> float:
    """From the first to the last point, by a straight line."""
    x = step - step.mean()
    slope = float((x * loss).sum() / max(float((x**2).sum()), 1e-30))
    return -slope * float(step[-1] - step[0])
