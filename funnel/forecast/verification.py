"""Judge a cloud run by its losses: is it learning, is it stable, is it where it should be?

The first two questions need no forecast. The stress test's detectors (:mod:`funnel.stress.detectors`)
answer them from the losses and the planned schedule. The third compares medians of windows, each a
hundredth of the run, with the band of the forecast. A run departs if LASTING successive windows lie
more than ALARM half widths from the middle on the same side.
"""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, TypeAlias

import numpy as np

from autoresearch.values import Finite, Frozen, NonNegativeInt, PositiveInt
from funnel.forecast.band import ALARM, BothRuns, Forecast
from funnel.forecast.cloud_log import CloudLog, CloudPoint
from funnel.forecast.schedule import GRID
from funnel.stress.curve import MIN_POINTS, Curve
from funnel.stress.detectors import RISE_NATS, divergence, plateau
from trainer.spec import CurvePoint

LASTING = 3
"""Successive losses or windows that are no accident."""
WINDOW = 0.01
"""Share of the run in a window."""
MOST_POINTS = 1000
"""Most points of a curve for the detectors; with more, neighbors are joined by their median."""

Question: TypeAlias = Literal["learning", "stable", "in place"]
ForecastVerdict: TypeAlias = Literal["within", "broken", "too_early", "no_band"]
"""``within`` confirms the run; ``broken``: it does not learn, diverges or departs from the
forecast. ``too_early``: the band is too wide so far. ``no_band``: there is no usable forecast."""


class Answer(Frozen):
    """The answer to one question."""

    question: Question
    answer: Literal["yes", "no", "unknown"]
    reason: str
    step: NonNegativeInt | None = None
    """Step since which the answer is no."""


class Window(Frozen):
    """Successive losses, compared with the band."""

    step: NonNegativeInt
    tokens: PositiveInt
    bpb: Finite
    """Median of the losses."""
    low_bpb: Finite
    middle_bpb: Finite
    high_bpb: Finite

    @property
    def off(self) -> float:
        """Distance from the middle in half widths of the band; positive if the loss is too high."""
        off = math.log(self.bpb / self.middle_bpb)
        edge = self.high_bpb if off > 0 else self.low_bpb
        return off / abs(math.log(edge / self.middle_bpb))


class Verification(Frozen):
    """The verdict on a cloud run, and the answers that it rests on."""

    verdict: ForecastVerdict
    answers: tuple[Answer, ...]
    points: NonNegativeInt
    """Number of losses in the log."""
    not_finite: NonNegativeInt
    repeated: NonNegativeInt
    """Number of losses dropped because the run was resumed from an earlier step."""
    ranks: PositiveInt
    """Number of processes that wrote into the log; their mean loss is judged."""
    bytes_per_token: float | None
    """Bytes per token that convert nats into bits per byte; None if unknown or not needed."""
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
    factor = 1.0 if in_bits else known and 1 / (math.log(2) * known)
    windows: tuple[Window, ...] = ()
    if forecast is not None and factor is not None:
        windows = tuple(_windows(log.points, forecast, factor))
    answers = (*_health(log, run, known), _place(windows, forecast, factor))
    verdict: ForecastVerdict = "too_early"
    if any(answer.answer == "no" for answer in answers):
        verdict = "broken"
    elif not windows or forecast is None or forecast.telling_point is None:
        verdict = "too_early" if forecast and forecast.telling_point and factor else "no_band"
    elif all(answer.answer == "yes" for answer in answers):
        verdict = "within"
    return Verification(
        verdict=verdict,
        answers=answers,
        points=len(log.points),
        not_finite=sum(not math.isfinite(point.loss) for point in log.points),
        repeated=log.repeated,
        ranks=log.ranks,
        bytes_per_token=known,
        windows=windows,
    )


def _health(log: CloudLog, run: BothRuns, bytes_per_token: float | None) -> tuple[Answer, Answer]:
    """Answer whether the run learns and whether it is stable."""
    for finite, group in groupby(log.points, key=lambda point: math.isfinite(point.loss)):
        lost = list(group)
        if not finite and len(lost) >= LASTING:
            why = f"{len(lost)} successive losses are not finite"
            return (
                Answer(question="learning", answer="unknown", reason="the loss is not finite"),
                Answer(question="stable", answer="no", reason=why, step=_step(lost[0], run)),
            )
    nats = 1.0
    if log.unit == "bits_per_byte":
        nats = math.log(2) * (bytes_per_token or run.bytes_per_token or 4.0)
    points = _curve_points(log.points, run, nats)
    warmup = run.schedule.warmup_steps
    if len(points) < 2 * MIN_POINTS or points[-1].step <= warmup:
        why = f"{len(points)} losses up to step {points[-1].step if points else 0:,} are too few"
        return (
            Answer(question="learning", answer="unknown", reason=why),
            Answer(question="stable", answer="unknown", reason=why),
        )
    curve = Curve(points, steps=points[-1].step, warmup=warmup)
    first, last = float(np.median(curve.loss[: curve.short])), curve.last_level
    risen = divergence(curve)
    stable = Answer(question="stable", answer="yes", reason="no lasting rise of the loss")
    if risen is not None:
        stable = Answer(question="stable", answer="no", reason=risen.explanation, step=risen.step)
    flat = plateau(curve) if risen is None else None
    learning = Answer(
        question="learning", answer="yes", reason=f"the loss fell from {first:.3f} to {last:.3f}"
    )
    if points[0].step <= max(warmup, WINDOW * run.schedule.steps) and first - last < RISE_NATS:
        why = f"the loss began at {first:.3f} and is at {last:.3f} nats per token"
        learning = Answer(question="learning", answer="no", reason=why, step=points[0].step)
    elif flat is not None:
        learning = Answer(question="learning", answer="no", reason=flat.explanation, step=flat.step)
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
            step=step, tokens=point.tokens, loss=float(level), lr=float(rate), grad_norm=1.0
        )
        for step, point, level, rate in values
    ]


def _step(point: CloudPoint, run: BothRuns) -> int:
    return round(point.tokens / run.tokens_per_step) if point.step is None else point.step


def _windows(points: Sequence[CloudPoint], forecast: Forecast, factor: float) -> list[Window]:
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
                bpb=float(np.median([point.loss for point in held])) * factor,
                low_bpb=low,
                middle_bpb=mid,
                high_bpb=high,
            )
        )
    return windows


def _place(windows: Sequence[Window], forecast: Forecast | None, factor: float | None) -> Answer:
    """Answer whether the run is where it should be."""
    if forecast is None:
        why = "the plan has no forecast"
        return Answer(question="in place", answer="unknown", reason=why)
    if factor is None:
        why = (
            "the bytes that a token of the cloud's tokenizer has are unknown; give them with "
            "--bytes-per-token"
        )
        return Answer(question="in place", answer="unknown", reason=why)
    if not windows:
        why = f"no loss lies within the forecast, which begins at step {forecast.points[0].step:,}"
        return Answer(question="in place", answer="unknown", reason=why)
    if forecast.ladder.missed is None:
        for side, sign in (("above", 1), ("below", -1)):
            out = [sign * window.off > ALARM for window in windows]
            for place in range(len(windows) - LASTING + 1):
                if all(out[place : place + LASTING]):
                    window = windows[place]
                    far = window.bpb / window.middle_bpb - 1
                    why = f"the loss is {abs(far):.1%} {side} the forecast's middle"
                    return Answer(question="in place", answer="no", reason=why, step=window.step)
    last = windows[-1]
    where = f"{last.bpb:.4f} bits per byte, {last.bpb / last.middle_bpb - 1:+.1%} off the middle"
    telling = forecast.telling_point
    if telling is not None and last.tokens >= telling.tokens:
        return Answer(question="in place", answer="yes", reason=where)
    return Answer(question="in place", answer="unknown", reason=f"{where}; {forecast.worth}")
