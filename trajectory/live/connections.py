"""How long a connection may keep the server waiting, and which one goes when there are too many.

uvicorn waits for ever for a request that was begun and never ended, so that somebody who begins
enough of them leaves no room for others. Here a connection has :data:`REQUEST_S` for each request,
and where there are too many the one that has kept the server waiting longest makes room.
Connections whose request is being answered, event streams among them, are left alone.
"""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""From a connection's begin, or its last request's, to the end of a request's headers and body."""

BACKLOG = 16
"""Connections taken in at once, before anybody else has a turn."""


def most_connections() -> int:
    """A quarter of the files this process may open, as those that leave hold theirs for a moment,
    and no more than there are lookers-on."""
    return max(16, min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))


class PatientProtocol(H11Protocol):
    """HTTP/1.1 for those who ask, and an end for those who only begin to."""

    most = most_connections()

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Make room first, and look again after a while."""
        super().connection_made(transport)
        self._since_s = time.monotonic()
        self._seen: Any = None
        self._look_again()
        if len(self.connections) > self.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to look at."""
        self._timer.cancel()
        super().connection_lost(exc)

    @property
    def waits(self) -> bool:
        """Whether the server waits for this connection, and not it for the server."""
        cycle = self.cycle
        return cycle is None or cycle.more_body or cycle.response_complete

    def _look_again(self) -> None:
        self._timer = self.loop.call_later(REQUEST_S, self._look)

    def _look(self) -> None:
        if self.waits and self.cycle is self._seen:
            self.transport.abort()
            return
        if self.cycle is not self._seen:
            self._seen, self._since_s = self.cycle, time.monotonic()
        self._look_again()

    def _make_room(self) -> None:
        held = [one for one in self.connections if isinstance(one, PatientProtocol)]
        waiting = [one for one in held if one.waits and one is not self]
        leaving = min(waiting, key=lambda one: one._since_s) if waiting else self
        self.connections.discard(leaving)  # it is told that it was lost a moment later
        leaving.transport.abort()
