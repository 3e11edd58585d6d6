"""The one retry policy towards an endpoint: what is tried again, when, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import openai
import tenacity


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what."""

    timeout_s: float = 60.0
    """One request, from sending it to the last byte of its reply."""
    deadline_s: float = 120.0
    """All tries of one question, the waits between them included."""
    probation_s: float = 30.0
    """The single try that an endpoint gets whose last question went unanswered: one that hangs
    costs each turn this much instead of a whole deadline, and one answer restores it."""
    wait: Callable[[tenacity.RetryCallState], float] = field(
        default_factory=lambda: tenacity.wait_exponential_jitter(multiplier=0.5, max=20, jitter=1)
    )
    """Seconds between tries, where the server names none of its own (Retry-After)."""


class AsToldOr:
    """Waits as long as the server's Retry-After says, or else as ``otherwise`` does."""

    def __init__(self, otherwise: Callable[[tenacity.RetryCallState], float]) -> None:
        self._otherwise = otherwise

    def __call__(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, openai.APIStatusError):
            told_s = retry_after_s(error.response.headers.get("retry-after", ""))
            if told_s is not None:
                return told_s
        return self._otherwise(state)


def may_pass(error: BaseException) -> bool:
    """Whether the same question may be answered a moment later."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code == 429 or (error.status_code >= 500 and error.status_code != 501)
    return isinstance(error, openai.APIConnectionError)


def retry_after_s(header: str) -> float | None:
    """Seconds, from either form of RFC 9110, 10.2.3; None where it is neither."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
