"""Middleware that authorizes every request and adds the security headers to every response."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trajectory.live.access import Access
from trajectory.live.pages import LINKED_PATHS, OPEN_PATHS

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Gate:
    """ASGI middleware that refuses unauthorized requests, and sends the content-security policy
    with every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if message["status"] == 413:
                    headers["Connection"] = "close"  # the server does not read the rest of the body
            await send(message)

        answer = _turned_away(Request(scope), self._access) or self._app
        await answer(scope, receive, with_policy)


def _turned_away(request: Request, access: Access) -> Response | None:
    # Do not use the path of request.url, which depends on the Host header.
    path = request.scope["path"]
    if _is_from_elsewhere(request, path):
        return PlainTextResponse("cross-site request refused", 403)
    if path in OPEN_PATHS or access.admits(request.headers, request.cookies):
        return None
    if "text/html" in request.headers.get("accept", ""):
        # Relative, because a reverse proxy may serve the page under a prefix that it strips.
        return RedirectResponse("../" * (path.count("/") - 1) + "login", 303)
    return JSONResponse(
        {"detail": "show the token: Authorization: Bearer …, or sign in at /login"},
        401,
        {"WWW-Authenticate": "Bearer"},
    )


def _is_from_elsewhere(request: Request, path: str) -> bool:
    """Return whether another site's page sent the request, other than by a link to the page.

    Browsers send Sec-Fetch-Site over HTTPS and to loopback, and no script can set it. Over plain
    HTTP they send only the Origin of writes, which is compared with the Host that the browser or
    the reverse proxy names. Other clients send neither.
    """
    headers, writes = request.headers, request.method not in {"GET", "HEAD"}
    site = headers.get("sec-fetch-site")
    if site is None:
        hosts = {headers.get("host"), headers.get("x-forwarded-host")}
        return writes and "origin" in headers and urlsplit(headers["origin"]).netloc not in hosts
    if site in {"same-origin", "none"}:
        return False
    return writes or path not in LINKED_PATHS or headers.get("sec-fetch-mode") != "navigate"
