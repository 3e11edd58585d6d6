"""Control who may use the live page, and how long a connection may keep its server waiting.

On loopback there is no authentication, elsewhere a shared token. The token travels in an
``Authorization: Bearer`` header or in the body of the sign-in form, never in a URL. Signing in sets
a cookie with an expiry time, signed with a key derived from the token. It survives a restart of the
server, and becomes invalid when the token changes.

uvicorn waits forever for a request that a client started and never finished, so a client that
starts enough of them locks out all others. Here a connection has :data:`REQUEST_S` for each
request. If there are too many connections, the server closes the one that has kept it waiting
longest. It never closes a connection whose request it is answering, such as an event stream.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import resource
import time
from collections.abc import Mapping
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

COOKIE = "autoresearch_session"
SESSION_S = 30 * 86_400
MIN_TOKEN_CHARACTERS = 16


class Access:
    """Checks tokens and session cookies; a token of None admits everyone."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    @property
    def is_open(self) -> bool:
        """Whether no token is required."""
        return self._token is None

    def accepts(self, token: str) -> bool:
        """Return whether it is the token, in a time that does not depend on where they differ."""
        return self._token is not None and hmac.compare_digest(_digest(token), _digest(self._token))

    def admits(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> bool:
        """Return whether a request with these headers and cookies may be answered."""
        if self._token is None:
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.accepts(token.strip()):
            return True
        expires, _, signature = cookies.get(COOKIE, "").partition(".")
        if not (expires.isascii() and expires.isdigit() and len(expires) < 20):
            return False
        if not hmac.compare_digest(signature.encode(), self._signature(expires).encode()):
            return False
        return int(expires) > time.time()

    def new_session(self) -> str:
        """Return a session cookie for a client that has shown the token."""
        expires = str(int(time.time()) + SESSION_S)
        return f"{expires}.{self._signature(expires)}"

    def _signature(self, expires: str) -> str:
        key = hashlib.sha256(b"autoresearch session\0" + (self._token or "").encode()).digest()
        return hmac.new(key, expires.encode(), hashlib.sha256).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server bound to ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
            held = [one for one in self.connections if isinstance(one, PatientProtocol)]
            waiting = [one for one in held if one.waits and one is not self]
            leaving = min(waiting, key=lambda one: one._since_s) if waiting else self
            self.connections.discard(leaving)  # connection_lost is called a moment later
            leaving.transport.abort()

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
