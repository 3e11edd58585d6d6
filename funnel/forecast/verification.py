"""Compare a cloud run's loss with its forecast, and give a verdict in one sentence.

A departure is an alarm of :mod:`funnel.forecast.watch`, or ``LASTING`` successive losses that are
not finite. A run is confirmed only once the log would have shown the needed faults.
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from statistics import median
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autoresearch.errors import HandoffError
from autoresearch.values import Finite, Frozen, NonNegativeInt, PositiveInt
from funnel.forecast.band import EARLY, Catch, Forecast, log_middle
from funnel.forecast.cloud_log import CloudLog, CloudPoint
from funnel.forecast.faults import catches, cut, power_lines
from funnel.forecast.robust_fit import Array
from funnel.forecast.watch import LASTING, SPIKE, Kind, Watch, median_error, noise_of
from funnel.target.shape import size_text

FEWEST_WINDOWS = LASTING + SPIKE

Side: TypeAlias = Literal["above", "below", "slower", "rising", "stopped", "not finite"]
_OF_LEVEL: frozenset[Kind] = frozenset({"level", "drift"})
"""Kinds of alarm that say where the loss lies. The others say how it moves, against the forecast;
its own movement decides in which words (:func:`_movement`)."""
_OF_MEDIAN = 1.4826
"""Standard deviation over the median absolute deviation, of a normal distribution."""
_SURE = 3.0
"""Standard errors by which a loss must have moved to be called falling or rising."""
_LIKE: dict[Side, str] = {
    "above": "is higher than a sound run's",
    "below": "is lower than a sound run's",
    "slower": "falls more slowly than a sound run's",
    "rising": "has risen",
    "stopped": "has stopped falling",
}

ForecastVerdict: TypeAlias = Literal["within", "broken", "too_early", "too_wide"]
"""Verdict on a cloud run.

``within`` confirms the run; ``broken``: it departs from the forecast. ``too_early``: the log could
not show the needed faults yet. ``too_wide``: the forecast is worthless.
"""


class Window(Frozen):
    """Successive points, compared with the band."""

    tokens: PositiveInt
    """Tokens of the middle point."""
    step: NonNegativeInt
    points: PositiveInt
    bpb: Finite
    """Median of the points."""
    low_bpb: Finite
    middle_bpb: Finite
    high_bpb: Finite
    beyond: Finite
    """Distance outside the band, relative to the edge; 0 inside, negative below."""


class Departure(Frozen):
    """A lasting departure of the run from the band."""

    side: Side
    step: NonNegativeInt
    tokens: PositiveInt
    """Tokens of the first window or point that departs; ``step`` is its step."""
    worst: Finite | None = None
    """Largest relative distance from the middle; None if the loss was not finite."""
    seen_at_step: NonNegativeInt | None = None
    """Step at which the departure could be detected; None if the loss was not finite."""


class Verification(Frozen):
    """Result of comparing a cloud log with its forecast."""

    verdict: ForecastVerdict
    departure: Departure | None
    """The departure if the verdict is ``broken``, else None."""
    points: NonNegativeInt
    """Number of losses in the log."""
    compared: NonNegativeInt
    """Number of losses in the windows."""
    before: NonNegativeInt
    """Number of losses before the forecast begins."""
    after: NonNegativeInt
    """Number of losses after the forecast ends."""
    not_finite: NonNegativeInt
    repeated: NonNegativeInt
    """Number of losses dropped because the run was resumed from an earlier step."""
    ranks: PositiveInt = 1
    """Number of processes that wrote into the log; their mean loss is compared."""
    bytes_per_token: float | None
    """Bytes per token used to convert nats into bits per byte; None if the log is in bits per byte.
    """
    caught: tuple[Catch, ...] = ()
    """The needed faults and when each is caught, for a usable forecast without a departure."""
    windows: tuple[Window, ...]
    sentence: str


def verify(log: CloudLog, forecast: Forecast, bytes_per_token: float | None) -> Verification:
    """Compare a log with its forecast.

    :param bytes_per_token: bytes per token of the cloud's tokenizer; None: the forecast's value.
    :raises HandoffError: if the log is in nats per token and the bytes per token are unknown.
    """
    factor, used_bytes = _to_bpb(log, forecast, bytes_per_token)
    first, last = forecast.points[0].tokens, forecast.points[-1].tokens
    inside = [p for p in log.points if first <= p.tokens <= last and math.isfinite(p.loss)]
    tokens_P = np.array([float(point.tokens) for point in inside])
    total = float(forecast.ladder.total_tokens)
    parts = cut(tokens_P, first / total, total)
    windows = tuple(_window([inside[i] for i in part], forecast, factor) for part in parts)
    departure = _lost(log.points, forecast)
    caught: tuple[Catch, ...] = ()
    is_enough = len(parts) >= FEWEST_WINDOWS
    if is_enough:
        loss_P = np.array([point.loss for point in inside]) * factor
        residual_P = np.log(np.maximum(loss_P, 1e-9)) - log_middle(forecast.points, tokens_P)
        watch = _watch(forecast, tokens_P, residual_P, parts)
        levels_W = np.array([float(np.median(residual_P[part])) for part in parts])
        alarm = _alarm(watch, levels_W, windows)
        if alarm and (departure is None or alarm.tokens <= departure.tokens):
            departure = alarm
        if departure is None and forecast.ladder.is_usable:
            caught = catches(watch, forecast.ladder.wrong_size, all_faults=False)
    missed = _not_yet(caught, windows, total)
    verdict: ForecastVerdict = "within" if is_enough and not missed else "too_early"
    if departure is not None:
        verdict = "broken"
    elif not forecast.ladder.is_usable:
        verdict = "too_wide"
    return Verification(
        verdict=verdict,
        departure=departure,
        points=len(log.points),
        compared=sum(window.points for window in windows),
        before=sum(point.tokens < first for point in log.points),
        after=sum(point.tokens > last for point in log.points),
        not_finite=sum(not math.isfinite(point.loss) for point in log.points),
        repeated=log.repeated,
        ranks=log.ranks,
        bytes_per_token=used_bytes,
        caught=caught,
        windows=windows,
        sentence=_broken(departure)
        if departure
        else _unbroken(verdict, windows, caught, missed, forecast),
    )


def _to_bpb(log: CloudLog, forecast: Forecast, asked: float | None) -> tuple[float, float | None]:
    if log.unit == "bits_per_byte":
        return 1.0, None
    bytes_per_token = asked or forecast.bytes_per_token
    if bytes_per_token is None:
        proxy, target = forecast.proxy_text, forecast.target_text
        raise HandoffError(
            f"the log's loss is in nats a token of a vocabulary of {target.vocab_size:,}, and the "
            f"forecast is from {proxy.tokenizer} with {proxy.vocab_size:,}: give the bytes that a "
            "token of the cloud's tokenizer has on average with --bytes-per-token"
        )
    return 1 / (math.log(2) * bytes_per_token), bytes_per_token


def _window(points: Sequence[CloudPoint], forecast: Forecast, factor: float) -> Window:
    middle = points[len(points) // 2]
    bpb = median(point.loss for point in points) * factor
    edges = forecast.at(np.array([middle.tokens], dtype=np.float64))
    low, mid, high = (float(edge[0]) for edge in edges)
    beyond = bpb / high - 1 if bpb > high else bpb / low - 1 if bpb < low else 0.0
    return Window(
        tokens=middle.tokens,
        step=_step(middle, forecast),
        points=len(points),
        bpb=bpb,
        low_bpb=low,
        middle_bpb=mid,
        high_bpb=high,
        beyond=beyond,
    )


def _step(point: CloudPoint, forecast: Forecast) -> int:
    return round(point.tokens / forecast.tokens_per_step) if point.step is None else point.step


def _lost(points: Sequence[CloudPoint], forecast: Forecast) -> Departure | None:
    """Return the first departure of LASTING successive losses that are not finite.

    The losses need not lie within the forecast.
    """
    for finite, group in groupby(points, key=lambda point: math.isfinite(point.loss)):
        run = list(group)
        if not finite and len(run) >= LASTING:
            step = _step(run[0], forecast)
            return Departure(side="not finite", step=step, tokens=run[0].tokens)
    return None


def _watch(
    forecast: Forecast, tokens_P: Array, residual_P: Array, parts: Sequence[NDArray[np.intp]]
) -> Watch:
    noise, correlation = noise_of(residual_P)
    points_W = np.array([float(len(part)) for part in parts])
    return Watch(
        forecast.ladder.sound,
        np.array([float(tokens_P[part].mean()) for part in parts]),
        median_error(noise, correlation, points_W),
        float(forecast.ladder.total_tokens),
        partial(log_middle, forecast.points),
    )


def _alarm(watch: Watch, levels_W: Array, windows: Sequence[Window]) -> Departure | None:
    """Return the first alarm, as a departure; None if there is none."""
    alarm = watch.first_alarm(levels_W)
    if alarm is None:
        return None
    since = windows[alarm.since]
    level_W = levels_W[alarm.since : alarm.analysis + 1]
    side: Side = "below" if levels_W[alarm.analysis] < 0 else "above"
    if alarm.kind not in _OF_LEVEL:
        loss_W = np.log([window.bpb for window in windows[alarm.since : alarm.analysis + 1]])
        side = _movement(loss_W)
    return Departure(
        side=side,
        step=since.step,
        tokens=since.tokens,
        worst=float(np.expm1(level_W[np.argmax(np.abs(level_W))])),
        seen_at_step=windows[alarm.analysis].step,
    )


def _movement(loss_W: Array) -> Side:
    """Return how a loss moves in the second half of its windows, since the first ones may precede a
    fault: by the difference between their last and first thirds, against its standard error from
    successive windows.

    :param loss_W: log losses.
    """
    loss_W = loss_W[len(loss_W) // 2 :] if len(loss_W) >= 2 * LASTING else loss_W
    third = max(1, len(loss_W) // 3)
    change = float(loss_W[-third:].mean() - loss_W[:third].mean())
    noise = float(np.median(np.abs(np.diff(loss_W)))) if len(loss_W) > 1 else 0.0
    stderr = _OF_MEDIAN * noise / math.sqrt(third)
    if abs(change) <= _SURE * stderr:
        return "stopped"
    return "rising" if change > 0 else "slower"


def _not_yet(caught: Sequence[Catch], windows: Sequence[Window], total: float) -> list[Catch]:
    """Return the needed faults that may be present in the log and would not be caught yet.

    A run that stopped learning at the share EARLY of its steps always counts as present: nothing is
    confirmed before the log could show it.
    """
    reached = windows[-1].tokens if windows else 0
    return [
        catch
        for catch in caught
        if catch.by_tokens is None
        and (catch.from_tokens < reached or catch.from_tokens <= EARLY * total)
    ]


def _broken(departure: Departure) -> str:
    since = f"step {departure.step:,} ({size_text(departure.tokens)} tokens)"
    if departure.seen_at_step is None:
        return f"broken: the loss is not finite since {since}"
    return (
        f"broken: against the forecast the loss {_LIKE[departure.side]} since about {since}, "
        f"{departure.worst or 0:+.1%} of its middle; told at step {departure.seen_at_step:,}, and "
        "fewer than one sound run in a hundred looks like it"
    )


def _unbroken(
    verdict: ForecastVerdict,
    windows: Sequence[Window],
    caught: Sequence[Catch],
    missed: Sequence[Catch],
    forecast: Forecast,
) -> str:
    """Return the sentence on a run without a departure."""
    if not windows:
        first = forecast.points[0]
        return (
            "too early to tell: too few losses lie within the forecast, which begins at step "
            f"{first.step:,} ({size_text(first.tokens)} tokens)"
        )
    last = windows[-1]
    off = last.bpb / last.middle_bpb - 1
    where = (
        f"nothing departs up to step {last.step:,} ({size_text(last.tokens)} tokens): now "
        f"{last.bpb:.4f} bits per byte, {abs(off):.1%} {'above' if off > 0 else 'below'} the "
        "forecast's middle"
    )
    if verdict == "too_wide":
        return "; ".join([f"too wide to tell: {where}", *power_lines(forecast)])
    if verdict == "too_early":
        faults = " or ".join(catch.words for catch in missed) or "most faults"
        return f"too early to tell: {where}, but the log could not show yet: {faults}"
    by_now = ", ".join(
        f"{catch.words} by step {round(catch.by_tokens / forecast.tokens_per_step):,}"
        for catch in caught
        if catch.by_tokens is not None
    )
    return f"within: {where}; would have been caught: {by_now}"
