"""Detect whether a run stopped learning at some step, by comparing two models of its whole curve.

In the sound model, the loss falls with progress by summed learning rate, ``A + B s^-b`` or ``A + B
exp(-r s)``, and with the rate itself (:mod:`funnel.forecast.schedule` cites the
papers). In the stopped model, the same power law holds up to some step, and the loss is level from
there. Both are fitted by least squares, over a grid of exponents and a grid of steps. The run
stopped if the stopped model fits better by more than noise allows. A curve that is only nearly flat
because its power law has come down fits the sound model as well, so it is not a stall.

The slope of the last stretch alone (:func:`funnel.stress.detectors.plateau`) must bound what noise
hides in a few points. This detector uses all earlier points to predict how fast the loss should
still fall.
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np

from funnel.stress.curve import Curve, Floats

EXPONENTS = np.geomspace(0.05, 2.0, 10)
RATES = np.geomspace(2.0, 40.0, 10)
"""Rates r of ``exp(-r s)``, s the share of progress made, for a small text that is soon learned."""
FROM_SHARE, TO_SHARE, PARTS = 0.1, 0.8, 29
"""Shares of the schedule between which a stop is searched for, and the number of steps tried. A
later stop does not count, since the run has had its schedule."""
LEAST_GAIN = 12.0
"""Smallest gain in twice the log likelihood that counts as a stop. None of 400 sound runs reached
it."""
LEAST_FALL = 0.004
"""Smallest missed fall, as a share of the loss, that is worth reporting."""
MOST_FALL = 0.3
"""Largest missed fall, as a share of the loss. A curve that was due to fall further was still in
its first plunge, which predicts nothing of what comes after."""
LEAST_AFTER = 8
"""Fewest points before and after a stop."""
MOST_POINTS = 200
"""Most points of a curve; with more, neighbors are averaged."""
STILL_FALLING = 0.35
"""Share of the predicted fall; a run that stopped shows less than this."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A step at which learning stopped."""

    step: int
    due: float
    """Nats that the loss should have fallen from the stop to the end."""
    seen: float
    """Nats that the loss did fall."""
    gain: float


def find_stall(curve: Curve, least_fall: float = LEAST_FALL) -> Stall | None:
    """Return the best-fitting stop if it fits enough better than the sound model, else None."""
    count = len(curve.step) - curve.begins
    if count < 2 * curve.wide:
        return None
    joined = -(-count // MOST_POINTS)
    rate = curve.rate / max(float(curve.rate.max()), 1e-30)
    sums = np.cumsum(rate * np.diff(curve.step, prepend=0))
    # Progress is the summed learning rates, 1 at the end; annealed is how far the rate is below its
    # peak, 0 to 1. Each is averaged over groups of neighbors, without surplus points at the start.
    progress, annealed, step, loss = (
        series[len(series) % joined :].reshape(-1, joined).mean(axis=1)
        for series in (
            (sums / sums[-1])[curve.begins :],
            (np.maximum.accumulate(rate) - rate)[curve.begins :],
            curve.step[curve.begins :].astype(np.float64),
            curve.loss[curve.begins :],
        )
    )
    # The remaining fall of a sound run follows a power law, or approaches a limit exponentially, as
    # for small models on small texts.
    powers = (progress**-b for b in EXPONENTS)
    exponentials = (np.exp(-rate * progress) for rate in RATES)
    sound = min(_fit(loss, fallen, annealed)[0] for fallen in chain(powers, exponentials))
    # Points that share noise carry less information than their number suggests.
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
        worth_a_word = least_fall * level < stall.due < MOST_FALL * level
        if worth_a_word and stall.seen < STILL_FALLING * stall.due:
            best = stall
    return best


def _fit(loss: Floats, fallen: Floats, annealed: Floats) -> tuple[float, Floats]:
    """Return the residual sum of squares, and the coefficients: the level, the height and the gain
    by annealing. The last two are not negative."""
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
    """Return the residual sum of squares of the model that stops at a point, and the fall that was
    due since."""
    held = np.minimum(np.arange(len(loss)), stop)
    squares, (_, height, gains) = _fit(loss, fallen[held], annealed[held])
    due = height * (fallen[stop] - fallen[-1]) + gains * (annealed[-1] - annealed[stop])
    return squares, float(due)


def _fall(step: Floats, loss: Floats) -> float:
    """Return the fall from the first to the last point, by a straight line."""
    x = step - step.mean()
    slope = float((x * loss).sum() / max(float((x**2).sum()), 1e-30))
    return -slope * float(step[-1] - step[0])
