"""The page's static files, and the sign-in form."""

from __future__ import annotations

import asyncio
from importlib import resources
from urllib.parse import parse_qs

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import RedirectResponse
from starlette.requests import ClientDisconnect

from trajectory.live.access import COOKIE, SESSION_S, Access

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
