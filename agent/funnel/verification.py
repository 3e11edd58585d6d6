"""The cloud's loss against its forecast.

The log's points within the forecast are cut into windows of equal numbers of points, at most 60,
each of five or more, and the median of a window is compared with the band: it departs where it is
more than 5 % above the high edge or 5 % below the low one. One window may be a spike; three in a
row that depart to the same side are a departure that lasts, and the proxy's word on this run is
void. As many losses in a row that are not finite say the same. A loss below the band is a departure
too: it is a measurement of something else than was planned. And since a band far beyond the
proxy's tokens is wide, a loss within it that rises is told as well: three windows in a row that are
more than 10 % above the lowest mean of three before them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from statistics import fmean, median
from typing import Literal

import numpy as np

from agent.errors import HandoffError
from agent.funnel.cloud_log import CloudLog, CloudPoint
from agent.funnel.forecast import Forecast
from agent.funnel.sizes import size_text
from trainer.spec import Finite, Frozen, NonNegativeInt, PositiveInt

TOLERANCE = 0.05
"""Beyond an edge, relative."""
RISE = 0.10
"""Above the run's own lowest level, relative."""
WINDOWS = 60
LEAST_POINTS = 5
"""Of a window."""
WIDE_BAND = 2.0
"""High edge to low one: beyond it being within is weak evidence, and the sentence says so."""
LASTING = 3
"""Windows in a row."""


class Window(Frozen):
    """Neighbouring points, and how they lie to the band."""

    tokens: PositiveInt
    """The median point's."""
    step: NonNegativeInt
    points: PositiveInt
    bpb: Finite
    """Median."""
    low_bpb: Finite
    middle_bpb: Finite
    high_bpb: Finite
    beyond: Finite
    """How far outside the band, relative to the edge; 0 inside, negative below."""

    @property
    def side(self) -> int:
        """1 departs upwards, -1 downwards, 0 does not."""
        return 0 if abs(self.beyond) <= TOLERANCE else int(math.copysign(1, self.beyond))


class Departure(Frozen):
    """Where the run left the band for good, or for long."""

    side: Literal["above", "below", "rising", "not finite"]
    step: NonNegativeInt
    tokens: PositiveInt
    """Of the first window, or point, that departs."""
    worst: Finite | None
    """Largest distance from the edge (rising: from the lowest level), relative; None where the loss
    was not finite."""
    back_at_step: NonNegativeInt | None = None
    """Where it came back, if it did."""


class Verification(Frozen):
    """What a cloud log says of its forecast."""

    verdict: Literal["within", "broken", "too_early"]
    departure: Departure | None
    """There is one exactly where the verdict is ``broken``."""
    points: NonNegativeInt
    """Losses in the log."""
    compared: NonNegativeInt
    """Of them, in windows."""
    before: NonNegativeInt
    """Earlier than the forecast begins."""
    after: NonNegativeInt
    """Later than it ends."""
    not_finite: NonNegativeInt
    repeated: NonNegativeInt
    """Dropped because the run was resumed from before them."""
    bytes_per_token: float | None
    """That turned nats into bits per byte; None where the log has bits per byte."""
    windows: tuple[Window, ...]
    sentence: str


def verify(log: CloudLog, forecast: Forecast, bytes_per_token: float | None) -> Verification:
    """Compare a log with its forecast.

    :param bytes_per_token: of the cloud's tokenizer; None: as the forecast knows it.
    :raises HandoffError: where the log is in nats a token and nothing says how long a token is.
    """
    factor, used_bytes = _to_bpb(log, forecast, bytes_per_token)
    first, last = forecast.points[0].tokens, forecast.points[-1].tokens
    inside = [point for point in log.points if first <= point.tokens <= last]
    finite = [point for point in inside if math.isfinite(point.loss)]
    windows = _windows(finite, forecast, factor)
    departure = _earliest(_lasting(windows), _rising(windows), _lost(log.points, forecast))
    enough = len(windows) >= LASTING
    verdict: Literal["within", "broken", "too_early"] = (
        "broken" if departure else "within" if enough else "too_early"
    )
    return Verification(
        verdict=verdict,
        departure=departure,
        points=len(log.points),
        compared=sum(window.points for window in windows),
        before=sum(point.tokens < first for point in log.points),
        after=sum(point.tokens > last for point in log.points),
        not_finite=sum(not math.isfinite(point.loss) for point in log.points),
        repeated=log.repeated,
        bytes_per_token=used_bytes,
        windows=tuple(windows),
        sentence=_sentence(windows, departure, forecast, log, len(finite)),
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


def _windows(points: Sequence[CloudPoint], forecast: Forecast, factor: float) -> list[Window]:
    """None of fewer than LEAST_POINTS; what does not fill the last one is added to it."""
    count = min(WINDOWS, len(points) // LEAST_POINTS)
    if count == 0:
        return []
    parts = np.array_split(np.arange(len(points)), count)
    return [_window([points[i] for i in part], forecast, factor) for part in parts]


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


def _lasting(windows: Sequence[Window]) -> Departure | None:
    """The first LASTING windows in a row that depart to one side."""
    place = 0
    for side, group in groupby(windows, key=lambda window: window.side):
        run = list(group)
        place += len(run)
        if side != 0 and len(run) >= LASTING:
            return Departure(
                side="above" if side > 0 else "below",
                step=run[0].step,
                tokens=run[0].tokens,
                worst=max((window.beyond for window in run), key=abs),
                back_at_step=windows[place].step if place < len(windows) else None,
            )
    return None


def _rising(windows: Sequence[Window]) -> Departure | None:
    """The first LASTING windows in a row above the lowest level before them."""
    for place in range(LASTING, len(windows) - LASTING + 1):
        lowest = min(
            fmean(window.bpb for window in windows[first : first + LASTING])
            for first in range(place - LASTING + 1)
        )
        highest = (1 + RISE) * lowest
        if all(window.bpb > highest for window in windows[place : place + LASTING]):
            rest = windows[place:]
            return Departure(
                side="rising",
                step=rest[0].step,
                tokens=rest[0].tokens,
                worst=max(window.bpb for window in rest) / lowest - 1,
                back_at_step=next((w.step for w in rest if w.bpb <= highest), None),
            )
    return None


def _lost(points: Sequence[CloudPoint], forecast: Forecast) -> Departure | None:
    """The first LASTING losses in a row that are not finite, wherever they are."""
    for finite, group in groupby(points, key=lambda point: math.isfinite(point.loss)):
        run = list(group)
        if not finite and len(run) >= LASTING:
            return Departure(
                side="not finite",
                step=_step(run[0], forecast),
                tokens=run[0].tokens,
                worst=None,
            )
    return None


def _earliest(*departures: Departure | None) -> Departure | None:
    found = [departure for departure in departures if departure is not None]
    return min(found, key=lambda departure: departure.tokens, default=None)


def _sentence(
    windows: Sequence[Window],
    departure: Departure | None,
    forecast: Forecast,
    log: CloudLog,
    usable: int,
) -> str:
    if departure is not None:
        return _broken(departure)
    first = forecast.points[0]
    if log.points[0].tokens > forecast.points[-1].tokens:
        return (
            f"nothing to compare: the log begins at {size_text(log.points[0].tokens)} tokens and "
            f"the forecast ends at {size_text(forecast.points[-1].tokens)}; give the run's log "
            "from its start"
        )
    if len(windows) < LASTING:
        reached = log.points[-1]
        return (
            f"too early to tell: {usable} losses lie within the forecast, which begins at step "
            f"{first.step:,} ({size_text(first.tokens)} tokens), and {LASTING * LEAST_POINTS} are "
            f"needed; the log reaches {size_text(reached.tokens)} tokens"
        )
    last = windows[-1]
    worst = max(windows, key=lambda window: abs(window.beyond))
    off = last.bpb / last.middle_bpb - 1
    return (
        f"within {TOLERANCE:.0%} of the forecast up to step {last.step:,} "
        f"({size_text(last.tokens)} tokens): now {last.bpb:.4f} bits per byte, band "
        f"{last.low_bpb:.4f} to {last.high_bpb:.4f}, {abs(off):.1%} "
        f"{'above' if off > 0 else 'below'} its middle"
        + (f"; farthest outside {worst.beyond:+.1%} at step {worst.step:,}" if worst.beyond else "")
        + (
            f"; the band is wide, its high edge {last.high_bpb / last.low_bpb:.3g} times its low "
            "one, so that this says little"
            if last.high_bpb > WIDE_BAND * last.low_bpb
            else ""
        )
    )


def _broken(departure: Departure) -> str:
    if departure.side == "not finite":
        return (
            f"broken: the loss is not finite since step {departure.step:,} "
            f"({size_text(departure.tokens)} tokens)"
        )
    what = (
        f"has been more than {RISE:.0%} above its own lowest"
        if departure.side == "rising"
        else f"is more than {TOLERANCE:.0%} {departure.side} the forecast"
    )
    back = (
        f"; it was back at step {departure.back_at_step:,}"
        if departure.back_at_step is not None
        else ""
    )
    return (
        f"broken: the loss {what} since step {departure.step:,} ({size_text(departure.tokens)} "
        f"tokens), at the worst by {abs(departure.worst or 0):.1%}{back}; the proxy does not stand "
        "for this run"
    )
