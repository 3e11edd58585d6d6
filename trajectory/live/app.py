"""The server: a JSON interface, an event stream and one static page over a :class:`Board`.

What comes from a model or a menu is sent as JSON and shown as text; the page's policy allows no
script, style or image but its own files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.datastructures import MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainer.spec import CurvePoint, Frozen
from trajectory.live.access import COOKIE, SESSION_S, Access
from trajectory.live.album import Figures
from trajectory.live.board import Board, Watched
from trajectory.live.brief import Brief, Status
from trajectory.live.metrics import metrics_text
from trajectory.live.telemetry import DeviceSample
from trajectory.ranking import Ranked
from trajectory.rows import EventRow, IterationRow

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FILES = {
    "page.js": "text/javascript",
    "page.css": "text/css",
    "uplot.min.js": "text/javascript",
    "uplot.min.css": "text/css",
    "icon.svg": "image/svg+xml",
}
FIGURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For a picture: it may style itself, and opened by itself it may do nothing."""
OPEN_PATHS = frozenset({"/healthz", "/login", *(f"/static/{name}" for name in FILES)})
"""What says nothing of any campaign."""
MAX_PAGE_ROWS = 5000
MAX_FORM_BYTES = 4096
WRONG_TOKEN_S = 0.5
"""What a wrong token costs whoever tries one."""


class CampaignSummary(Frozen):
    """One line of the board."""

    name: str
    directory: str
    menu: str | None
    created_at: str | None
    error: str | None
    """Why it can no longer be followed."""
    status: Status


class RunningNow(Frozen):
    """The trial at work."""

    trial_id: str
    config_hash: str
    seed: int
    steps: int | None
    points: tuple[CurvePoint, ...]
    """After the step asked for."""


class Now(Frozen):
    """A campaign at this moment."""

    summary: CampaignSummary
    running: RunningNow | None
    device: tuple[DeviceSample, ...]
    """Samples after the moment asked for, oldest first."""


class PauseWanted(Frozen):
    """What the pause file should be."""

    paused: bool


def create_app(board: Board, access: Access) -> FastAPI:
    """The application; ``access`` says who may look."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with board.following():
            yield

    app = FastAPI(
        title="autoresearch",
        summary="Campaigns as they run.",
        lifespan=lifespan,
        # Their pages load scripts from elsewhere, which this server's policy forbids.
        docs_url=None,
        redoc_url=None,
    )
    if access.is_open:
        # A page elsewhere that points its own name at 127.0.0.1 is turned away.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", "[::1]"])
    app.add_middleware(Gate, access=access)
    _add_pages(app, access)
    _add_interface(app, board)
    return app


# --- who may, and under which policy ------------------------------------------------------------


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
    if request.method not in {"GET", "HEAD"} and not _is_from_here(request):
        return PlainTextResponse("asked for by a page from elsewhere", 403)
    if request.url.path in OPEN_PATHS or access.admits(request.headers, request.cookies):
        return None
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("/login", 303)
    return JSONResponse(
        {"detail": "show the token: Authorization: Bearer …, or sign in at /login"},
        401,
        {"WWW-Authenticate": "Bearer"},
    )


def _is_from_here(request: Request) -> bool:
    """Whether no other site's page sent it; browsers name the origin of every such request."""
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


# --- pages --------------------------------------------------------------------------------------


def _static(name: str) -> bytes:
    return (resources.files("trajectory.live") / "static" / name).read_bytes()


def _add_pages(app: FastAPI, access: Access) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return Response(_static("page.html"), media_type="text/html")

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name not in FILES:
            raise HTTPException(404)
        return Response(_static(name), media_type=FILES[name])

    @app.get("/login", include_in_schema=False)
    def login_form() -> Response:
        return Response(_static("login.html"), media_type="text/html")

    @app.post("/login", include_in_schema=False)
    async def login(request: Request) -> Response:
        form = parse_qs((await _beginning(request)).decode("utf-8", "replace"))
        if not access.accepts(form.get("token", [""])[0].strip()):
            await asyncio.sleep(WRONG_TOKEN_S)
            return RedirectResponse("/login#wrong", 303)
        response = RedirectResponse("/", 303)
        response.set_cookie(
            COOKIE,
            access.new_session(),
            max_age=SESSION_S,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response


async def _beginning(request: Request) -> bytes:
    """Of its body, as much as a form may have: whoever sends it has shown no token yet."""
    body = b""
    async for some in request.stream():
        body += some
        if len(body) > MAX_FORM_BYTES:
            break
    return body[:MAX_FORM_BYTES]


# --- the interface ------------------------------------------------------------------------------


def _add_interface(app: FastAPI, board: Board) -> None:
    def find(name: str) -> Watched:
        if name not in board.campaigns:
            known = ", ".join(board.campaigns) or "none yet"
            raise HTTPException(404, f"there is no campaign {name!r}; there are: {known}")
        return board.campaigns[name]

    @app.get("/healthz")
    def health() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse)
    def metrics() -> Response:
        """The board for Prometheus."""
        return Response(metrics_text(board), media_type="text/plain; version=0.0.4")

    @app.get("/api/campaigns")
    def campaigns() -> list[CampaignSummary]:
        """Every campaign, in the order found."""
        with board.lock:
            return [_summary(watched) for watched in board.campaigns.values()]

    @app.get("/api/campaigns/{name}/now")
    def now(name: str, trial: str = "", step: int = 0, device_after: str = "") -> Now:
        """How it stands: the running trial's curve after ``step`` (of ``trial``; all of another's),
        and the device's samples after the moment ``device_after``."""
        watched = find(name)
        with board.lock:
            return Now(
                summary=_summary(watched),
                running=_running(watched, trial, step),
                device=tuple(one for one in watched.device.samples if one.at > device_after),
            )

    @app.get("/api/campaigns/{name}/iterations")
    def iterations(
        name: str,
        after: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_ROWS)] = MAX_PAGE_ROWS,
    ) -> list[Brief]:
        """Finished iterations in order, those after the given one."""
        return find(name).follower.after(after, limit)

    @app.get("/api/campaigns/{name}/iterations/{number}")
    def iteration(name: str, number: int) -> IterationRow:
        """The whole row: proposal, reason, verdict, config, trials, decision, raw replies."""
        row = find(name).follower.iteration(number)
        if row is None:
            raise HTTPException(404, f"campaign {name} has no iteration {number} yet")
        return row

    @app.get("/api/campaigns/{name}/top")
    def top(name: str, k: Annotated[int, Query(ge=1, le=100)] = 10) -> list[Ranked]:
        """The k best configs by posterior mean."""
        watched = find(name)
        with board.lock:
            return watched.follower.top(k)

    @app.get("/api/campaigns/{name}/figures")
    def figures(name: str) -> Figures:
        """The report's figures as last drawn; asking has newer ones drawn where rows landed."""
        watched = find(name)
        return watched.album.look(len(watched.follower.briefs))

    @app.get("/api/campaigns/{name}/figures/{figure}.svg", response_class=Response)
    def figure(name: str, figure: str) -> Response:
        """One of them."""
        path = find(name).album.file(figure)
        if path is None:
            raise HTTPException(404, f"campaign {name} has no figure {figure!r} yet")
        return Response(
            path.read_bytes(),
            media_type="image/svg+xml",
            headers={"Content-Security-Policy": FIGURE_POLICY},
        )

    @app.get("/api/campaigns/{name}/happenings")
    def happenings(name: str) -> list[EventRow]:
        """What happened to the campaign, the newest first."""
        return list(reversed(find(name).follower.events))

    @app.put("/api/campaigns/{name}/pause")
    def pause(name: str, wanted: PauseWanted) -> PauseWanted:
        """Write or remove the pause file, which the loop obeys before its next iteration."""
        watched = find(name)
        try:
            watched.follower.pause(wanted.paused)
        except OSError as error:
            raise HTTPException(
                409,
                f"the pause file of {name} cannot be changed ({error.strerror}): "
                "this server may only read there",
            ) from error
        return PauseWanted(paused=watched.follower.paused)

    @app.get("/api/events", response_class=EventSourceResponse)
    async def events() -> AsyncIterator[ServerSentEvent]:
        """A stream: each change of a campaign, with the iterations that landed."""
        yield ServerSentEvent(event="hello", data={})
        async for change in board.changes():
            landed = [brief.model_dump(mode="json") for brief in change.landed]
            yield ServerSentEvent(
                event="change", data={"campaign": change.campaign, "landed": landed}
            )


def _summary(watched: Watched) -> CampaignSummary:
    follower = watched.follower
    campaign = follower.campaign
    return CampaignSummary(
        name=watched.name,
        directory=str(follower.directory),
        menu=campaign.menu_name if campaign else None,
        created_at=campaign.created_at if campaign else None,
        error=watched.error,
        status=follower.status(),
    )


def _running(watched: Watched, trial: str, step: int) -> RunningNow | None:
    running = watched.follower.running
    if running is None:
        return None
    after = step if running.trial_id == trial else 0
    return RunningNow(
        trial_id=running.trial_id,
        config_hash=running.config_hash,
        seed=running.seed,
        steps=running.steps,
        points=tuple(point for point in running.points if point.step > after),
    )
