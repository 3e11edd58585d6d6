"""How a person stops a campaign: once politely, twice at once; or pauses it with a file."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from trainer.errors import AutoresearchError


class Interrupted(AutoresearchError):
    """A person asked the campaign to stop; everything finished is on disk."""


class StopRequest:
    """Counts SIGINT and SIGTERM: after one the running trial is the last, after two it dies."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def soon(self) -> bool:
        return self.count >= 1

    def now(self) -> bool:
        """Whether even the running trial should end."""
        return self.count >= 2

    def check(self) -> None:
        """Between trials.

        :raises Interrupted: once a stop was asked for.
        """
        if self.soon:
            raise Interrupted("stopped as asked")

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Handle the two signals while the block runs; only the main thread may."""

        def count(_signal: int, _frame: FrameType | None) -> None:
            self.count += 1

        previous = {
            number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
