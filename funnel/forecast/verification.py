"""Compare a cloud run's loss with its forecast and give a verdict.

:mod:`funnel.forecast.departures` and :mod:`funnel.forecast.ladder.comparison` find the departures.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, NonNegativeInt
from funnel.forecast.band import Forecast
from funnel.forecast.cloud_log import CloudLog, CloudPoint
from funnel.forecast.departures import (
    LASTING,
    Departure,
    Window,
    earliest_departure,
    lost,
    make_windows,
    telling_point,
    tells,
)
from funnel.forecast.ladder.basis import Catch, LadderBasis
from funnel.forecast.ladder.comparison import FEWEST_WINDOWS, LadderComparison
from funnel.forecast.verification_words import ladder_sentence, verdict_sentence

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
