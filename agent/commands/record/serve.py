"""``autoresearch serve``: the live page."""

from __future__ import annotations

import importlib.util
import os
import shlex
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.settings.environment import read_environment
from autoresearch.campaign_files import has_file
from autoresearch.code import module_command
from autoresearch.errors import MachineryError, SettingsError
from autoresearch.layout import JOURNAL_FILE, is_imported
from autoresearch.program import install_command
from funnel.cost.rates import rate_variables
from trainer.machine.environment import allowed_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autoresearch.values import Scalar
    from trajectory.live.app import Access
    from trajectory.live.board import Board
    from trajectory.queue import Queued

DEFAULT_PLACE = Path("runs")
PACKAGES = ("anyio", "fastapi", "prometheus_client", "starlette", "uvicorn")
"""Packages of the extra ``serve``; another package may have brought some of them."""
DRAW = module_command("autoresearch", "report")
NICENESS = 10
"""Niceness of the server, so that viewing does not slow the training."""
BACKLOG = 64
"""Connections that are accepted at once, before surplus ones are closed; by default all, which may
be more than this process can open."""
END_S = 2
"""Seconds that open requests get when the server ends."""


def serve(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Campaigns, or directories that hold campaigns. Default: runs.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            "--host", help="Address to listen on; any but loopback needs AUTORESEARCH_SERVE_TOKEN."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535)] = 8765,
) -> None:
    """Show campaigns live: page, JSON, /healthz and /metrics.

    The page is read-only except for the pause button and the queue of proposals.
    """
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise MachineryError(
            f"the live page needs {', '.join(missing)}, which this Python lacks; run: "
            f"{install_command('serve')}"
        )
    from trajectory.live.app import is_loopback  # noqa: PLC0415
    from trajectory.live.board import Board  # noqa: PLC0415

    access = access_of(needs_token=not is_loopback(host))
    places = places or [DEFAULT_PLACE]
    for place in places:
        if not place.is_dir():
            raise SettingsError(
                f"there is no directory {place}; name a campaign, or the directory that holds some"
            )
    if all(is_imported(place) and not has_file(place, JOURNAL_FILE) for place in places):
        raise SettingsError(
            f"{places[0]} was imported from another tool and has no journal to follow; see it "
            f"with: {shlex.join(['autoresearch', 'report', '--campaign', str(places[0])])}"
        )
    _run(Board(places, DRAW, drawing_environment()), access, host, port)


def drawing_environment() -> dict[str, str]:
    """Return the environment of a process that draws a report: no key, and what Matplotlib and the
    costs need."""
    folders = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR")
    return allowed_environment(also=(*folders, *rate_variables()))


def _propose(
    directory: Path, changes: Mapping[str, Scalar], reason: str, author: str | None
) -> Queued:
    from agent.commands.campaign_view import CampaignView  # noqa: PLC0415 (slow to load)

    return CampaignView(directory).propose(changes, reason, author)


def access_of(*, needs_token: bool) -> Access:
    """Return the access control by the token of the environment.

    :raises SettingsError: if the token is missing or too short.
    """
    from trajectory.live.app import MIN_TOKEN_CHARACTERS, Access  # noqa: PLC0415

    secret = read_environment().serve_token
    token = secret.get_secret_value().strip() if secret is not None else ""
    if not token:
        if needs_token:
            raise SettingsError(
                "a page that others can reach needs a token and AUTORESEARCH_SERVE_TOKEN is not"
                " set; set it (openssl rand -hex 32 makes one), or leave --host at 127.0.0.1"
            )
        return Access(None)
    if len(token) < MIN_TOKEN_CHARACTERS:
        raise SettingsError(
            f"AUTORESEARCH_SERVE_TOKEN has {len(token)} characters, too few to be safe; use at"
            f" least {MIN_TOKEN_CHARACTERS} (openssl rand -hex 32 makes 64)"
        )
    return Access(token)


def _run(board: Board, access: Access, host: str, port: int) -> None:
    import uvicorn  # noqa: PLC0415

    from trajectory.live.app import create_app  # noqa: PLC0415
    from trajectory.live.connections import TimedProtocol  # noqa: PLC0415

    with listening(host, port) as listener:
        os.nice(NICENESS)
        address = listener.getsockname()
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        typer.echo(f"http://{shown}:{address[1]}  (Ctrl-C ends it)")
        config = uvicorn.Config(
            create_app(board, access, _propose),
            http=TimedProtocol,
            backlog=BACKLOG,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=END_S,
        )
        uvicorn.Server(config).run(sockets=[listener])


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    :raises MachineryError: if the port is taken.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise MachineryError(
            f"cannot listen on {host}:{port} ({error.strerror}); choose another --port or --host"
        ) from error
