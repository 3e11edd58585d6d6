"""Define the retry policy for an endpoint: what is retried, when, and for how long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import tenacity


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits for an endpoint."""

    timeout_s: float = 60.0
    """Limit of one request, from sending it to the last byte of its reply."""
    deadline_s: float = 120.0
    """Limit of all tries of one question, waits included."""
    probation_s: float = 30.0
    """Limit of the single try of an endpoint that failed the last question and its health check. A
    dead endpoint costs each iteration this much instead of a whole deadline. Twice its slowest
    answer if that is longer."""
    health_check_s: float = 5.0
    """Limit of a health check."""
    wait: Callable[[tenacity.RetryCallState], float] = field(
        default_factory=lambda: tenacity.wait_exponential_jitter(multiplier=0.5, max=20, jitter=1)
    )
    """Seconds between tries; a server's Retry-After can only increase them."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Time limits for one question."""

    timeout_s: float
    """Limit of one try."""
    deadline_s: float
    """Limit of all tries."""
    retries: bool = True


@dataclass(slots=True)
class Standing:
    """History of an endpoint, which determines its next limits."""

    slowest_s: float = 0.0
    """Its slowest answer so far."""
    unanswered: int = 0
    """Consecutive questions without an answer, of which a refusal is one too."""

    def allowance(self, patience: Patience, is_well: Callable[[], bool]) -> Allowance:
        """Return the limits of the next question.

        An endpoint with an unanswered question gets a health check first. If it is healthy, its
        silence may have been a loading model or a long queue, so it gets the usual limits, and
        after a second silence one whole try. If not, it gets one probation try, never shorter than
        its slowest answer requires.
        """
        whole = Allowance(patience.timeout_s, patience.deadline_s)
        if self.unanswered == 0:
            return whole
        if is_well():
            if self.unanswered == 1:
                return whole
            seconds = min(max(patience.timeout_s, 2 * self.slowest_s), patience.deadline_s)
        else:
            seconds = min(max(patience.probation_s, 2 * self.slowest_s), patience.deadline_s)
        return Allowance(seconds, seconds, retries=False)


def retry_after_s(header: str) -> float | None:
    """Return seconds from either form of RFC 9110, 10.2.3; None if invalid or past."""
    with contextlib.suppress(ValueError):
        seconds = float(header)
        return seconds if seconds > 0 else None
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        seconds = parsedate_to_datetime(header).timestamp() - time.time()
        return seconds if seconds > 0 else None
    return None
