"""Connections of the live page that do not wait for ever for a request.

uvicorn closes idle connections, but not one whose request is never completed. A thousand of those
use up the process's file descriptors, and then nobody can open the page.
"""

import asyncio
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 15.0
"""Seconds in which a request must arrive, body included."""
MOST_CONNECTIONS = 200
_RECEIVING = (h11.IDLE, h11.SEND_BODY)


class TimedProtocol(H11Protocol):
    """uvicorn's protocol with a time limit for each request and a limit of connections."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limit: asyncio.TimerHandle | None = None
        self.began_s = time.monotonic()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; if there are too many, close the one that has waited longest."""
        super().connection_made(transport)
        self._watch()
        there = [one for one in self.connections if isinstance(one, TimedProtocol)]
        there = [one for one in there if not one.transport.is_closing()]
        if len(there) > MOST_CONNECTIONS:
            waiting = [one for one in there if one.is_receiving]
            min(waiting, key=lambda one: one.began_s, default=self).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop()
        super().connection_lost(exc)

    @property
    def is_receiving(self) -> bool:
        """Whether a request has not arrived completely."""
        return self.conn.their_state in _RECEIVING

    def _watch(self) -> None:
        if not self.is_receiving:
            self._stop()
        elif self._limit is None:
            self.began_s = time.monotonic()
            self._limit = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _stop(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
