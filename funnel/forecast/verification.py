"""Compare a cloud run's loss with its forecast, and give a verdict in one sentence."""

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, NonNegativeInt
from funnel.forecast.band import Forecast
from funnel.forecast.cloud_log import CloudLog, CloudPoint
from funnel.forecast.departures import (
    LASTING,
    LEAST_POINTS,
    RISE,
    TOLERANCE,
    Departure,
    Window,
    earliest_departure,
    lost,
    make_windows,
    stalled_bpb,
    telling_point,
    tells,
)
from funnel.forecast.ladder.basis import Catch, LadderBasis
from funnel.forecast.ladder.comparison import FEWEST_WINDOWS, LadderComparison
from funnel.forecast.ladder.words import power_lines
from funnel.target.shape import size_text

_LIKE = {
    "above": "is higher than a sound run's",
    "below": "is lower than a sound run's",
    "rising": "has risen",
    "stopped": "has stopped falling",
}
WIDE_BAND = 2.0
"""Ratio of the high edge to the low edge above which the sentence calls the evidence weak."""


def verdict_sentence(
    windows: Sequence[Window],
    departure: Departure | None,
    forecast: Forecast,
    log: CloudLog,
    usable: int,
) -> str:
    """Return the verdict on a run whose forecast is from the proxy's law, in words.

    :param usable: number of finite losses within the forecast.
    """
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
    if not tells(last, forecast):
        return _nothing_shown(last, forecast)
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


def _nothing_shown(last: Window, forecast: Forecast) -> str:
    telling = telling_point(forecast)
    what = (
        f"nothing departs up to step {last.step:,} ({size_text(last.tokens)} tokens; now "
        f"{last.bpb:.4f} bits per byte, band {last.low_bpb:.4f} to {last.high_bpb:.4f}), but "
        "neither would a run that stopped learning where the forecast begins, at "
        f"{stalled_bpb(forecast):.4f}"
    )
    if telling is None:
        return (
            f"too wide to tell: {what}, and the band excludes it at no step; larger proxies and "
            "longer stress runs make a narrower one"
        )
    return (
        f"too early to tell: {what}; from step {telling.step:,} ({size_text(telling.tokens)} "
        "tokens) on the band excludes it"
    )


def _broken(departure: Departure) -> str:
    if departure.side == "not finite":
        return (
            f"broken: the loss is not finite since step {departure.step:,} "
            f"({size_text(departure.tokens)} tokens)"
        )
    if departure.seen_at_step is not None:
        return (
            f"broken: against the forecast the loss {_LIKE[departure.side]} since about step "
            f"{departure.step:,} ({size_text(departure.tokens)} tokens), "
            f"{departure.worst or 0:+.1%} of its middle; told at step "
            f"{departure.seen_at_step:,}, and fewer than one sound run in a hundred looks like it"
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


def ladder_sentence(
    verdict: str, departure: Departure | None, seen: LadderComparison, log: CloudLog
) -> str:
    """Return the verdict on a run whose forecast is from a ladder, in words."""
    if departure is not None:
        return _broken(departure)
    if not seen.windows:
        first = seen.forecast.points[0]
        return (
            f"too early to tell: {len(seen.points)} losses lie within the forecast, which begins "
            f"at step {first.step:,} ({size_text(first.tokens)} tokens); the log reaches "
            f"{size_text(log.points[-1].tokens)} tokens"
        )
    last = seen.windows[-1]
    off = last.bpb / last.middle_bpb - 1
    where = (
        f"nothing departs up to step {last.step:,} ({size_text(last.tokens)} tokens): now "
        f"{last.bpb:.4f} bits per byte, {abs(off):.1%} {'above' if off > 0 else 'below'} the "
        "forecast's middle"
    )
    if verdict == "too_wide":
        return "; ".join([f"too wide to tell: {where}", *power_lines(seen.basis, seen.forecast)])
    missed = [f"one that {c.words}" if c.words[0].isalpha() else c.words for c in seen.not_yet]
    if verdict == "too_early":
        what = f"a run {' or '.join(missed)}" if missed else "most faults"
        return f"too early to tell: {where}, but {what} might not have been caught yet"
    caught = [c for c in seen.caught if c.by_tokens is not None]
    by_now = ", ".join(
        f"{c.words} by step {round((c.by_tokens or 0) / seen.forecast.tokens_per_step):,}"
        for c in caught
    )
    return f"within: {where}; would have been caught: {by_now}"


ForecastVerdict: TypeAlias = Literal["within", "broken", "too_early", "too_wide"]
"""Verdict on a cloud run.

``within`` confirms the run; ``broken``: it departs from the forecast. ``too_early``: there are too
few losses, or the log does not yet reach tokens at which the band confirms a run
(:mod:`funnel.forecast.departures`). ``too_wide``: the band confirms no run anywhere.
"""


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
    bytes_per_token: float | None
    """Bytes per token used to convert nats into bits per byte; None if the log is in bits per byte.
    """
    telling_step: NonNegativeInt | None
    """Step from which the band excludes a run that stopped learning; None if it never does, or if
    the forecast is from a ladder."""
    caught: tuple[Catch, ...] = ()
    """The needed faults and when each is caught, for a forecast from a ladder without a departure.
    """
    windows: tuple[Window, ...]
    sentence: str


def verify(log: CloudLog, forecast: Forecast, bytes_per_token: float | None) -> Verification:
    """Compare a log with its forecast.

    :param bytes_per_token: bytes per token of the cloud's tokenizer; None: the forecast's value.
    :raises HandoffError: if the log is in nats per token and the bytes per token are unknown.
    """
    factor, used_bytes = _to_bpb(log, forecast, bytes_per_token)
    first, last = forecast.points[0].tokens, forecast.points[-1].tokens
    inside = [point for point in log.points if first <= point.tokens <= last]
    finite = [point for point in inside if math.isfinite(point.loss)]
    found = (
        _against_proxy(log, forecast, finite, factor)
        if forecast.ladder is None
        else _against_ladder(log, forecast, forecast.ladder, finite, factor)
    )
    return Verification(
        **found,
        points=len(log.points),
        compared=sum(window.points for window in found["windows"]),
        before=sum(point.tokens < first for point in log.points),
        after=sum(point.tokens > last for point in log.points),
        not_finite=sum(not math.isfinite(point.loss) for point in log.points),
        repeated=log.repeated,
        bytes_per_token=used_bytes,
    )


def _against_proxy(
    log: CloudLog, forecast: Forecast, finite: Sequence[CloudPoint], factor: float
) -> dict[str, Any]:
    windows = make_windows(finite, forecast, factor)
    departure = earliest_departure(windows, log.points, forecast)
    telling = telling_point(forecast)
    verdict: ForecastVerdict = "broken" if departure else "too_early"
    if departure is None and len(windows) >= LASTING:
        if tells(windows[-1], forecast):
            verdict = "within"
        elif telling is None:
            verdict = "too_wide"
    return {
        "verdict": verdict,
        "departure": departure,
        "telling_step": telling.step if telling else None,
        "caught": (),
        "windows": tuple(windows),
        "sentence": verdict_sentence(windows, departure, forecast, log, len(finite)),
    }


def _against_ladder(
    log: CloudLog,
    forecast: Forecast,
    basis: LadderBasis,
    finite: Sequence[CloudPoint],
    factor: float,
) -> dict[str, Any]:
    seen = LadderComparison(forecast, basis, tuple(finite), factor)
    departures = [d for d in (seen.departure, lost(log.points, forecast)) if d is not None]
    departure = min(departures, key=lambda found: found.tokens, default=None)
    verdict: ForecastVerdict
    if departure is not None:
        verdict = "broken"
    elif not basis.is_usable:
        verdict = "too_wide"
    elif len(seen.windows) < FEWEST_WINDOWS or seen.not_yet:
        verdict = "too_early"
    else:
        verdict = "within"
    return {
        "verdict": verdict,
        "departure": departure,
        "telling_step": None,
        "caught": seen.caught if departure is None and basis.is_usable else (),
        "windows": seen.windows,
        "sentence": ladder_sentence(verdict, departure, seen, log),
    }


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
