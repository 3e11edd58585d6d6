"""Judge a cloud run by its losses: is it learning, is it stable, is it where it should be?

The first two questions need no forecast: the stress test's detectors
(:mod:`funnel.stress.detectors`) answer them from the losses and the planned schedule. The third
compares medians of windows, each a hundredth of the run, with the band of the forecast. A run
departs if LASTING successive windows lie more than ALARM half widths from the middle on the same
side.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

import numpy as np

from autoresearch.values import Finite, Frozen
from funnel.forecast.band import ALARM, BothRuns, Forecast, ForecastPoint
from funnel.forecast.cloud_log import CloudLog, CloudPoint
from funnel.forecast.schedule import GRID
from funnel.stress.curve import MIN_POINTS, Curve
from funnel.stress.detectors import RISE_NATS, divergence, plateau
from trainer.schema import CurvePoint

# Successive losses or windows that are no accident, and the share of the run in a window.
LASTING, WINDOW = 3, 0.01
# A large run's loss falls more slowly than a long run's; the share of the log that is "just now".
FLAT_SHARE, LATELY = 0.004, 0.05
MOST_POINTS = 1000  # of a curve for the detectors; beyond, neighbors are joined by their median

Question: TypeAlias = Literal["learning", "stable", "in place"]
ForecastVerdict: TypeAlias = Literal["within", "broken", "too_early", "no_band"]


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """The answer to one question, and the step since which it is no."""

    question: Question
    answer: Literal["yes", "no", "unknown"]
    reason: str
    step: int | None = None


class Window(ForecastPoint):
    """The band, and the median of successive losses there."""

    bpb: Finite

    @property
    def off(self) -> float:
        """Distance from the middle in half widths of the band, above zero if too high."""
        edge = self.high_bpb if self.bpb > self.middle_bpb else self.low_bpb
        return math.log(self.bpb / self.middle_bpb) / abs(math.log(edge / self.middle_bpb))


class Verification(Frozen):
    """The verdict on a cloud run, and the answers that it rests on.

    ``within`` confirms the run; ``broken``: it does not learn, diverges or departs from the
    forecast. ``too_early``: the band is too wide so far. ``no_band``: there is no usable forecast.
    ``bytes_per_token`` converted the log's nats; it is None if it is unknown or not needed.
    """

    verdict: ForecastVerdict
    answers: tuple[AnsweredQuestion, ...]
    bytes_per_token: float | None
    windows: tuple[Window, ...]


def verify(
    log: CloudLog, run: BothRuns, forecast: Forecast | None, bytes_per_token: float | None = None
) -> Verification:
    """Judge a cloud run by its log.

    :param run: the planned run.
    :param forecast: its forecast; None if there is none.
    :param bytes_per_token: bytes per token of the cloud's tokenizer; None: the plan's value.
    """
    in_bits = log.unit == "bits_per_byte"
    known = None if in_bits else bytes_per_token or run.bytes_per_token
    windows: list[Window] = []
    if forecast is not None and (in_bits or known):
        windows = _windows(log.points, forecast, math.log(2) * known if known else 1.0)
    place = AnsweredQuestion("in place", "unknown", "the plan has no forecast")
    if windows and forecast is not None:
        place = _place(windows, forecast)
    elif forecast is not None:
        why = f"no loss lies within the forecast, which begins at step {forecast.points[0].step:,}"
        if not in_bits and known is None:
            why = "the bytes per token of its tokenizer are unknown; give --bytes-per-token"
        place = AnsweredQuestion("in place", "unknown", why)
    answers = (*_health(log, run), place)
    told = {answer.answer for answer in answers}
    verdict: ForecastVerdict = "within" if told == {"yes"} else "too_early"
    if "no" in told:
        verdict = "broken"
    elif forecast is None or forecast.telling_point is None or not (in_bits or known):
        verdict = "no_band"
    return Verification(
        verdict=verdict,
        answers=answers,
        bytes_per_token=known,
        windows=tuple(windows),
    )


def _health(log: CloudLog, run: BothRuns) -> tuple[AnsweredQuestion, AnsweredQuestion]:
    """Answer whether the run learns and whether it is stable."""
    for finite, group in groupby(log.points, key=lambda point: math.isfinite(point.loss)):
        lost = list(group)
        if not finite and len(lost) >= LASTING:
            why = f"{len(lost)} successive losses are not finite"
            stable = AnsweredQuestion("stable", "no", why, _step(lost[0], run))
            return AnsweredQuestion("learning", "unknown", why), stable
    # The detectors think in nats per token; four bytes a token are usual.
    bits = math.log(2) * (run.bytes_per_token or 4.0)
    points = _curve_points(log.points, run, bits if log.unit == "bits_per_byte" else 1.0)
    warmup = run.schedule.warmup_steps
    if len(points) < 2 * MIN_POINTS or points[-1].step <= warmup:
        why = f"{len(points)} losses, within the warm-up or too few"
        return AnsweredQuestion("learning", "unknown", why), AnsweredQuestion(
            "stable", "unknown", why
        )
    curve = Curve(points, steps=points[-1].step, warmup=warmup)
    first, last = float(np.median(curve.loss[: curve.short])), curve.last_level
    learning = AnsweredQuestion("learning", "yes", f"the loss fell from {first:.3f} to {last:.3f}")
    stable = AnsweredQuestion("stable", "yes", "no lasting rise of the loss")
    if risen := divergence(curve):
        # A rise that has just begun may be a spike.
        is_old = (risen.step or 0) < (1 - LATELY) * points[-1].step
        stable = AnsweredQuestion(
            "stable", "no" if is_old else "unknown", risen.explanation, risen.step
        )
    if points[0].step <= max(warmup, WINDOW * run.schedule.steps) and first - last < RISE_NATS:
        why = f"the loss began at {first:.3f} and is at {last:.3f} nats per token"
        learning = AnsweredQuestion("learning", "no", why, points[0].step)
    # Only by the slope: a small spike at the end of a log spoils the fit of a stop.
    elif not risen and (flat := plateau(curve, flat_share=FLAT_SHARE, least_fall=1.0)):
        learning = AnsweredQuestion("learning", "no", flat.explanation, flat.step)
    return learning, stable


def _curve_points(points: Sequence[CloudPoint], run: BothRuns, nats: float) -> list[CurvePoint]:
    """Return the finite losses as a curve with the planned rates, at most MOST_POINTS of them."""
    finite = [point for point in points if math.isfinite(point.loss)]
    joined = -(-len(finite) // MOST_POINTS) or 1
    last = finite[joined - 1 :: joined]
    loss = np.array([point.loss for point in finite[: joined * len(last)]]).reshape(-1, joined)
    steps, rates = [_step(point, run) for point in last], run.schedule.rates()
    lr = np.interp(steps, np.linspace(0, run.schedule.steps, GRID + 1), rates)
    values = zip(steps, last, np.median(loss, axis=1) * nats, lr, strict=True)
    return [
        CurvePoint.model_construct(
            step=step,
            tokens=point.tokens,
            loss=float(level),
            lr=float(rate),
            grad_norm=1.0,
            elapsed_s=0.0,
        )
        for step, point, level, rate in values
    ]


def _step(point: CloudPoint, run: BothRuns) -> int:
    return round(point.tokens / run.tokens_per_step) if point.step is None else point.step


def _windows(points: Sequence[CloudPoint], forecast: Forecast, nats: float) -> list[Window]:
    """Return the windows.

    :param nats: what one bit per byte is in the log's unit.
    """
    first, last = forecast.points[0].tokens, forecast.points[-1].tokens
    inside = [p for p in points if first <= p.tokens <= last and math.isfinite(p.loss)]
    windows = []
    for _, group in groupby(inside, key=lambda point: int((point.tokens - 1) / last / WINDOW)):
        held = list(group)
        middle = held[len(held) // 2]
        low, mid, high = (float(e[0]) for e in forecast.at(np.array([float(middle.tokens)])))
        windows.append(
            Window(
                step=_step(middle, forecast),
                tokens=middle.tokens,
                bpb=float(np.median([point.loss for point in held])) / nats,
                low_bpb=low,
                middle_bpb=mid,
                high_bpb=high,
            )
        )
    return windows


def _place(windows: Sequence[Window], forecast: Forecast) -> AnsweredQuestion:
    """Answer whether the run is where it should be."""
    telling, last = forecast.telling_point, windows[-1]
    for place in range(len(windows) - LASTING + 1):
        held = windows[place : place + LASTING]
        is_above = held[0].off > 0
        departs = all(abs(one.off) > ALARM and (one.off > 0) == is_above for one in held)
        if departs and forecast.ladder.missed is None:
            far = abs(held[0].bpb / held[0].middle_bpb - 1)
            why = f"the loss is {far:.1%} {'above' if is_above else 'below'} the forecast's middle"
            return AnsweredQuestion("in place", "no", why, held[0].step)
    where = f"{last.bpb:.4f} bits per byte, {last.bpb / last.middle_bpb - 1:+.1%} off the middle"
    if telling is not None and last.tokens >= telling.tokens:
        return AnsweredQuestion("in place", "yes", where)
    return AnsweredQuestion("in place", "unknown", f"{where}; {forecast.worth}")
