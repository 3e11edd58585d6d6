"""Limit how long a connection may keep the live page's server waiting.

uvicorn waits forever for a request that a client started and never finished, so a client that
starts enough of them locks out all others. Here a connection has :data:`REQUEST_S` for each
request. If there are too many connections, the server closes the one that has kept it waiting
longest. It never closes a connection whose request it is answering, such as an event stream.
"""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""Seconds for a request's headers and body, since the connection began or its last request."""

BACKLOG = 16
"""Connections accepted at once, before other tasks get their turn."""


def most_connections() -> int:
    """Return a quarter of the files that this process may open, between 16 and 512.

    The rest leaves room for closing connections, which keep their descriptors for a moment.
    """
    return max(16, min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))


class PatientProtocol(H11Protocol):
    """HTTP/1.1 protocol that closes connections with unfinished requests."""

    most = most_connections()

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Start the connection's timer, and close the longest-waiting one if there are too many."""
        super().connection_made(transport)
        self._since_s = time.monotonic()
        self._seen: Any = None
        self._wait()
        if len(self.connections) > self.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the connection's timer."""
        self._timer.cancel()
        super().connection_lost(exc)

    @property
    def waits(self) -> bool:
        """Whether the server is waiting for this connection to send a request."""
        cycle = self.cycle
        return cycle is None or cycle.more_body or cycle.response_complete

    def _wait(self) -> None:
        self._timer = self.loop.call_later(REQUEST_S, self._check)

    def _check(self) -> None:
        if self.waits and self.cycle is self._seen:
            self.transport.abort()
            return
        if self.cycle is not self._seen:
            self._seen, self._since_s = self.cycle, time.monotonic()
        self._wait()

    def _make_room(self) -> None:
        held = [one for one in self.connections if isinstance(one, PatientProtocol)]
        waiting = [one for one in held if one.waits and one is not self]
        leaving = min(waiting, key=lambda one: one._since_s) if waiting else self
        self.connections.discard(leaving)  # connection_lost is called a moment later
        leaving.transport.abort()
