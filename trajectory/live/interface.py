"""JSON interface of the live page, also for other clients."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.values import Frozen, Scalar
from autoresearch.words import brief
from trainer.schema import code_diffs
from trajectory import ranking
from trajectory.confirmed import ConfirmedConfig
from trajectory.live.board import Board, WatchedCampaign, readable
from trajectory.live.brief import Brief, Status
from trajectory.live.growing_files import DeviceSample, RunningTrial
from trajectory.live.metrics import metrics_text
from trajectory.queue import Queued, queued_in, withdraw
from trajectory.ranking import Ranked
from trajectory.report.versus import compare_campaigns
from trajectory.rows import EventRow, IterationRow

REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "frame-ancestors 'none'; sandbox allow-scripts"
)
"""Policy of a report's page, which has a stricter one with the hashes of its style and script. In
the sandbox it has another origin than this server, so its script could ask for nothing here."""
MAX_PAGE_ROWS = 5000
MOST_EVENTS = 50
STALLED_S = 60.0
"""Seconds without a poll of the campaigns after which the server reports itself as stalled."""

router = APIRouter()


class CampaignSummary(Frozen):
    """One line of the board."""

    name: str
    directory: str
    menu: str | None
    created_at: str | None
    error: str | None
    """Reason why it can no longer be followed."""
    trouble: str | None
    """The error or the kill that ended its last session; None if it runs or ended well."""
    status: Status


class Now(Frozen):
    """A campaign at this moment."""

    summary: CampaignSummary
    running: RunningTrial | None
    """The newest running trial, with the points of its curve after the requested step."""
    lanes: tuple[RunningTrial, ...]
    """The trial on each lane, with the latest point of its curve; empty if one trial runs at a
    time, or none does."""
    device: tuple[DeviceSample, ...]
    """Samples after the requested time, oldest first."""


class RankedLine(Ranked):
    """A line of the ranking."""

    difference: dict[str, Scalar | None]
    """The config's values that differ from the baseline's; empty if there is no baseline."""
    from_best: dict[str, Scalar | None]
    """The config's values that differ from the best config's; None for a value that only the best
    has."""
    confirmed: ConfirmedConfig | None
    """Its results on fresh runs; None if there were none."""


class PauseWanted(Frozen):
    """Whether the pause file exists, or is to exist."""

    paused: bool


Propose: TypeAlias = Callable[[Path, Mapping[str, Scalar], str, str | None], Queued]
"""Checks and queues a proposal: the campaign's directory, changes, reason and author."""


class ProposalWanted(Frozen):
    """A proposal from the page."""

    changes: dict[str, Scalar]
    reason: str = ""
    author: str | None = None
    """Name for the row; None: the user who runs the server."""


async def _board(request: Request) -> Board:
    return cast(Board, request.app.state.board)


TheBoard: TypeAlias = Annotated[Board, Depends(_board)]


async def _named(name: str, board: TheBoard) -> WatchedCampaign:
    if name not in board.campaigns:
        known = ", ".join(board.campaigns) or "none yet"
        raise HTTPException(404, f"there is no campaign {name!r}; there are: {known}")
    return board.campaigns[name]


Named: TypeAlias = Annotated[WatchedCampaign, Depends(_named)]
"""The campaign of the path's ``{name}``."""


@router.get("/healthz")
def health(board: TheBoard, response: Response) -> dict[str, str]:
    """Report whether the server still follows the campaigns; status 503 if it does not."""
    if stalled := board.silent_s() > STALLED_S:
        response.status_code = 503
    return {"status": "stalled" if stalled else "ok"}


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(board: TheBoard) -> Response:
    """Return the board's metrics for Prometheus."""
    return Response(metrics_text(board), media_type="text/plain; version=0.0.4")


@router.get("/api/campaigns")
def campaigns(board: TheBoard) -> list[CampaignSummary]:
    """Return every campaign, in the order found."""
    with board.lock:
        return [_summary(watched) for watched in board.campaigns.values()]


@router.get("/api/campaigns/{name}/now")
def now(
    board: TheBoard, watched: Named, trial: str = "", step: int = 0, device_after: str = ""
) -> Now:
    """Return the campaign's current state.

    It includes the running trial's curve after ``step`` (the whole curve if the trial is not
    ``trial``), and the device's samples after the time ``device_after``.
    """
    with board.lock:
        running = watched.follower.running
        if running is not None and running.trial_id == trial:
            later = tuple(point for point in running.points if point.step > step)
            running = running.model_copy(update={"points": later})
        return Now(
            summary=_summary(watched),
            running=running,
            lanes=watched.follower.lanes(),
            device=tuple(one for one in watched.device.samples if one.at > device_after),
        )


@router.get("/api/campaigns/{name}/iterations")
def iterations(
    watched: Named,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_ROWS)] = MAX_PAGE_ROWS,
) -> list[Brief]:
    """Return the iterations that finished after the given one, in order."""
    return watched.follower.after(after, limit)


@router.get("/api/campaigns/{name}/iterations/{number}")
def iteration(watched: Named, number: int) -> IterationRow:
    """Return the whole row: proposal, reason, verdict, config, trials, decision, raw replies."""
    if (row := watched.follower.iteration(number)) is None:
        raise HTTPException(404, f"campaign {watched.name} has no iteration {number} yet")
    return row


@router.get("/api/campaigns/{name}/iterations/{number}/code")
def code(board: TheBoard, watched: Named, number: int) -> dict[str, str]:
    """Return a small diff of each function that the iteration changed, by code knob."""
    row = iteration(watched, number)
    with board.lock:
        known = watched.follower.state.evidence.configs.get(row.decision.reference_hash or "")
    if row.config is None or known is None:
        return {}
    return {name: "\n".join(d) for name, d in code_diffs(row.config, known.config.said).items()}


@router.get("/api/campaigns/{name}/top")
def top(
    board: TheBoard, watched: Named, k: Annotated[int, Query(ge=1, le=100)] = 10
) -> list[RankedLine]:
    """Return the k best configs by posterior mean."""
    with board.lock:
        evidence = watched.follower.state.evidence
        baseline = evidence.configs.get(evidence.baseline_hash or "")
        before = baseline.config.said if baseline else None
        fresh = watched.follower.state.latest_confirmed()
        ranked = ranking.top(evidence, k)
        return [
            RankedLine.model_validate(
                {
                    **dict(entry),
                    "difference": {} if before is None else _changed(before, entry.config.said),
                    "from_best": _changed(ranked[0].config.said, entry.config.said),
                    "confirmed": fresh.get(entry.config_hash),
                }
            )
            for entry in ranked
        ]


@router.get("/api/campaigns/{name}/report", response_class=HTMLResponse)
async def report(board: TheBoard, watched: Named) -> HTMLResponse:
    """Return the page of the campaign's report, drawn anew if rows have arrived."""
    follower = watched.follower
    try:
        page = await board.drawer.page(follower.directory, follower.rows)
    except MachineryError as error:
        raise HTTPException(500, readable(str(error))) from error
    return HTMLResponse(page, headers={"Content-Security-Policy": REPORT_POLICY})


@router.get("/api/campaigns/{name}/diff/{other}")
def diff(board: TheBoard, watched: Named, other: str) -> list[tuple[str, str]]:
    """Return the comparison with another campaign as labels and lines, as ``autoresearch diff``
    prints it."""
    if other not in board.campaigns:
        raise HTTPException(404, f"there is no campaign {other!r} to compare with")
    first, second = (one.follower.directory for one in (watched, board.campaigns[other]))
    try:
        return list(compare_campaigns(first, second).facts())
    except AutoresearchError as error:
        raise HTTPException(409, str(error)) from error


@router.get("/api/campaigns/{name}/events")
def events(watched: Named) -> list[EventRow]:
    """Return the campaign's events, the newest first."""
    return watched.follower.state.newest(EventRow, MOST_EVENTS)


@router.put("/api/campaigns/{name}/pause")
def pause(watched: Named, wanted: PauseWanted) -> PauseWanted:
    """Write or remove the pause file, which the loop obeys before its next iteration."""
    try:
        watched.follower.pause(wanted.paused)
    except OSError as error:
        raise HTTPException(
            409,
            f"the pause file of {watched.name} cannot be changed ({error.strerror}): "
            "this server may only read there",
        ) from error
    return PauseWanted(paused=watched.follower.paused)


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


def _summary(watched: WatchedCampaign) -> CampaignSummary:
    follower, campaign = watched.follower, watched.follower.state.campaign
    return CampaignSummary(
        name=watched.name,
        directory=readable(str(follower.directory)),
        menu=campaign.menu_name if campaign else None,
        created_at=campaign.created_at if campaign else None,
        error=watched.error,
        trouble=follower.trouble,
        status=follower.status(),
    )


def _changed(before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> dict[str, Scalar | None]:
    """Return the values of ``after`` that differ from those of ``before``; None for one that it
    lacks."""
    names = [name for name in {**before, **after} if after.get(name) != before.get(name)]
    return {name: brief(name, after[name]) if name in after else None for name in names}
