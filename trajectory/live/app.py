"""The server: a JSON interface, an event stream and one static page over a :class:`Board`.

Texts from a model or a menu are sent as JSON and shown as text. The page's policy allows only its
own scripts, styles and images.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from trajectory.live import interface, pages, queue
from trajectory.live.access import Access
from trajectory.live.board import Board
from trajectory.live.gate import Gate

MAX_BODY_BYTES = 4096
"""Longest body of a request; a longer one gets status 413."""


def create_app(board: Board, access: Access, propose: queue.Propose) -> FastAPI:
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
    app.include_router(pages.router)
    app.include_router(interface.router)
    app.include_router(queue.router)
    return app
