"""Control who may use the live page.

On loopback there is no authentication, elsewhere a shared token. The token travels in an
``Authorization: Bearer`` header or in the body of the sign-in form, never in a URL. Signing in sets
a cookie with an expiry time, signed with a key derived from the token. It survives a restart of the
server, and becomes invalid when the token changes.
"""

import hashlib
import hmac
import ipaddress
import time
from collections.abc import Mapping

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
