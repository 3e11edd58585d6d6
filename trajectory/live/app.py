"""The server: a JSON interface and one static page over a :class:`Board`, and who may use it.

Texts from a model or a menu are sent as JSON and shown as text. The page's policy allows only its
own scripts, styles and images.

On loopback there is no authentication, elsewhere a shared token. The token travels in an
``Authorization: Bearer`` header or in the body of the sign-in form, never in a URL. Signing in sets
a cookie with an expiry time, signed with a key derived from the token. It survives a restart of the
server, and becomes invalid when the token changes.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import resources
from urllib.parse import parse_qs, urlsplit

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse
from starlette.datastructures import MutableHeaders
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trajectory.live import interface
from trajectory.live.board import Board

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


FILES = {
    "page.js": "text/javascript",
    "page.css": "text/css",
    "uplot.min.js": "text/javascript",
    "uplot.min.css": "text/css",
    "icon.svg": "image/svg+xml",
}
OPEN_PATHS = frozenset({"/healthz", "/login", *(f"/static/{name}" for name in FILES)})
"""Paths without data about any campaign, served without a token."""
LINKED_PATHS = frozenset({"/", "/login"})
"""Paths that another site may link to, because opening them has no effect."""
WRONG_TOKEN_S = 0.5
"""Seconds of delay after a wrong token."""

router = APIRouter(include_in_schema=False)


@router.get("/")
def page() -> Response:
    return Response(_static("page.html"), media_type="text/html")


@router.get("/static/{name}")
def static(name: str) -> Response:
    if name not in FILES:
        raise HTTPException(404)
    return Response(_static(name), media_type=FILES[name])


@router.get("/login")
def login_form() -> Response:
    return Response(_static("login.html"), media_type="text/html")


@router.post("/login")
async def login(request: Request) -> Response:
    access: Access = request.app.state.access
    try:
        form = parse_qs((await request.body()).decode("utf-8", "replace"))
    except ClientDisconnect:
        return Response(status_code=400)
    if not access.accepts(form.get("token", [""])[0].strip()):
        await asyncio.sleep(WRONG_TOKEN_S)
        return RedirectResponse("login#wrong", 303)
    response = RedirectResponse("./", 303)
    response.set_cookie(
        COOKIE,
        access.new_session(),
        max_age=SESSION_S,
        path=None,  # the sign-in page's own folder, so that a proxy's prefix is part of it
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


def _static(name: str) -> bytes:
    return (resources.files("trajectory.live") / "static" / name).read_bytes()


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


MAX_BODY_BYTES = 4096
"""Longest body of a request; a longer one gets status 413."""


def create_app(board: Board, access: Access, propose: interface.Propose) -> FastAPI:
    """Return the application.

    :param access: decides which requests it answers.
    :param propose: queues the page's proposals.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with board.following():
            yield

    app = FastAPI(
        title="autoresearch",
        summary="Campaigns as they run.",
        lifespan=lifespan,
        # FastAPI's pages load scripts from other sites, which this server's policy forbids.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # redirects would lack a proxy's prefix
    )
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=MAX_BODY_BYTES)
    if access.is_open:
        # Refuse a site that points its own domain name at 127.0.0.1 (DNS rebinding).
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", "[::1]"])
    app.add_middleware(Gate, access=access)
    app.state.board, app.state.access, app.state.propose = board, access, propose
    app.include_router(router)
    app.include_router(interface.router)
    return app
