"""The one retry policy towards an endpoint: what is tried again, when, and for how long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import tenacity


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what."""

    timeout_s: float = 60.0
    """One request, from sending it to the last byte of its reply."""
    deadline_s: float = 120.0
    """All tries of one question, the waits between them included."""
    probation_s: float = 30.0
    """The single try that an endpoint gets whose last question went unanswered and that does not
    look well either: one that is dead costs each turn this much instead of a whole deadline. Twice
    its slowest answer where that is longer."""
    look_s: float = 5.0
    """For a look at whether such an endpoint is well again."""
    wait: Callable[[tenacity.RetryCallState], float] = field(
        default_factory=lambda: tenacity.wait_exponential_jitter(multiplier=0.5, max=20, jitter=1)
    )
    """Seconds between tries; a server's Retry-After can only make them more."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one question is allowed."""

    timeout_s: float
    """For one try."""
    deadline_s: float
    """For all of them."""
    retries: bool = True


@dataclass(slots=True)
class Standing:
    """What an endpoint's record entitles its next question to."""

    slowest_s: float = 0.0
    """Its slowest answer so far."""
    unanswered: int = 0
    """Questions in a row that brought nothing."""

    def allowance(self, patience: Patience, is_well: Callable[[], bool]) -> Allowance:
        """How long the next question may take.

        An endpoint that owes an answer is looked at first. Where it looks well its silence may have
        been a model that was loading or a long queue, so it is asked as ever; where it has been
        silent more than once in spite of that, it has one whole try. Where it does not look well
        it has the one try of its probation, which is never shorter than what it is known to need.
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

    def asked(self) -> None:
        """A question goes out; until it is answered it counts as unanswered."""
        self.unanswered += 1

    def answered(self) -> None:
        """The endpoint said something, be it no."""
        self.unanswered = 0

    def took(self, seconds: float) -> None:
        """One answer took so long."""
        self.slowest_s = max(self.slowest_s, seconds)


def retry_after_s(header: str) -> float | None:
    """Seconds, from either form of RFC 9110, 10.2.3; None where it is neither or lies behind."""
    with contextlib.suppress(ValueError):
        seconds = float(header)
        return seconds if seconds > 0 else None
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        seconds = parsedate_to_datetime(header).timestamp() - time.time()
        return seconds if seconds > 0 else None
    return None
