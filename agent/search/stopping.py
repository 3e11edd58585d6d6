"""How a person stops a campaign: once politely, twice at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A person asked the campaign to stop; everything finished is on disk.

    Like its base it is no ``Exception``, so that no library on the way takes it for a failure of
    its own and tries again.
    """


class StopRequest:
    """SIGINT and SIGTERM, and what they may cut short.

    Outside the two blocks below a signal stops the work where it is: nothing is lost by that while
    a corpus is read or a model is asked. A trial is worth finishing, so within
    :meth:`finishing_trial` one signal only marks the end and a second one, seen through
    :meth:`now`, kills the trial. Rows are written whole whatever comes: :meth:`writing`.
    """

    def __init__(self) -> None:
        self._count = 0
        self._deferred = 0

    def now(self) -> bool:
        """Whether even the running trial should end."""
        return self._count >= 2

    def check(self) -> None:
        """Between trials.

        :raises Interrupted: once a stop was asked for.
        """
        if self._count:
            raise Interrupted("stopped as asked")

    @contextmanager
    def finishing_trial(self) -> Iterator[None]:
        """A trial runs: signals are counted, not obeyed."""
        self._deferred += 1
        try:
            yield
        finally:
            self._deferred -= 1

    writing = finishing_trial
    """A row is being written: the same, and it takes milliseconds."""

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Handle the two signals while the block runs; only the main thread may."""

        def asked(_signal: int, _frame: FrameType | None) -> None:
            self._count += 1
            if not self._deferred:
                raise Interrupted("stopped as asked")

        signals = (signal.SIGINT, signal.SIGTERM)
        previous = {number: signal.signal(number, asked) for number in signals}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
