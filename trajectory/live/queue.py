"""Interface of the live page to a campaign's queue of proposals."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from fastapi import APIRouter, HTTPException, Request

from autoresearch.errors import AutoresearchError
from autoresearch.values import Frozen, Scalar
from trajectory.live.interface import Named
from trajectory.queue import Queued, queued_in, withdraw

Propose: TypeAlias = Callable[[Path, Mapping[str, Scalar], str, str | None], Queued]
"""Checks and queues a proposal: the campaign's directory, changes, reason and author."""

router = APIRouter()


class ProposalWanted(Frozen):
    """A proposal from the page."""

    changes: dict[str, Scalar]
    reason: str = ""
    author: str | None = None
    """Name for the row; None: the user who runs the server."""


@router.get("/api/campaigns/{name}/queue")
def queue(watched: Named) -> list[dict[str, Any]]:
    """Return the proposals whose iterations are not in the journal yet."""
    return [one.fields for one in queued_in(watched.follower.directory)]


@router.post("/api/campaigns/{name}/queue", status_code=201)
def propose(request: Request, watched: Named, wanted: ProposalWanted) -> dict[str, Any]:
    """Queue a proposal that the rails allow now; status 409 says why they do not."""
    proposed: Propose = request.app.state.propose
    directory = watched.follower.directory
    try:
        return proposed(directory, wanted.changes, wanted.reason, wanted.author or None).fields
    except AutoresearchError as error:
        raise HTTPException(409, str(error)) from error


@router.delete("/api/campaigns/{name}/queue/{number}")
def remove(watched: Named, number: str) -> dict[str, str]:
    """Withdraw a proposal that waits."""
    try:
        withdraw(watched.follower.directory, number)
    except AutoresearchError as error:
        raise HTTPException(409, str(error)) from error
    return {"withdrawn": number}
