"""Who may look, and under which policy: in front of everything the server answers."""

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
    """ASGI middleware in front of everything: turns away who may not look, and sends the policy
    with every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = _turned_away(Request(scope), self._access) or self._app
        await answer(scope, receive, with_policy)


def _turned_away(request: Request, access: Access) -> Response | None:
    # Not the path of request.url, which is made of whatever the Host header says.
    path = request.scope["path"]
    if _is_from_elsewhere(request, path):
        return PlainTextResponse("asked for by a page from elsewhere", 403)
    if path in OPEN_PATHS or access.admits(request.headers, request.cookies):
        return None
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("/login", 303)
    return JSONResponse(
        {"detail": "show the token: Authorization: Bearer …, or sign in at /login"},
        401,
        {"WWW-Authenticate": "Bearer"},
    )


def _is_from_elsewhere(request: Request, path: str) -> bool:
    """Whether another site's page sent it: not by a link to the page, which anybody may set.

    Browsers name the origin of what could change something, and of everything whether it is the
    same; others than browsers say neither.
    """
    origin = request.headers.get("origin")
    if request.method not in {"GET", "HEAD"} and origin is not None:
        return urlsplit(origin).netloc != request.headers.get("host")
    if request.headers.get("sec-fetch-site", "none") in {"same-origin", "none"}:
        return False
    return path not in LINKED_PATHS or request.headers.get("sec-fetch-mode") != "navigate"
