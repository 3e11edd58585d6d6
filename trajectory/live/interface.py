"""The JSON interface: what the page asks for, and whoever else wants to know."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from autoresearch.values import Frozen, Scalar
from trainer.spec import CurvePoint
from trajectory.confirmed import ConfirmedConfig
from trajectory.live.album import Figures
from trajectory.live.board import Board, Watched, readable
from trajectory.live.brief import Brief, Status
from trajectory.live.lanes import LanesSeen
from trajectory.live.metrics import metrics_text
from trajectory.live.telemetry import DeviceSample
from trajectory.ranking import Ranked
from trajectory.rows import EventRow, IterationRow

FIGURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For a picture: it may style itself, and opened by itself it may do nothing."""
MAX_PAGE_ROWS = 5000
MAX_STREAMS = 64
"""Event streams open at once."""
MAX_STREAMS_OF_ADDRESS = 8
STALLED_S = 60.0
"""Without a look at the campaigns, the server is not well."""

router = APIRouter()


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
    lanes: LanesSeen | None
    """What runs where; None where one trial runs at a time, or nothing does."""
    device: tuple[DeviceSample, ...]
    """Samples after the moment asked for, oldest first."""


class Health(Frozen):
    """How the server itself is."""

    status: Literal["ok", "stalled"]


class Standing(Ranked):
    """A line of the ranking."""

    difference: dict[str, Scalar | None]
    """The values in which the config is not the baseline's; empty where there is no baseline."""
    from_best: dict[str, Scalar | None]
    """The values in which it is not the best one's; None where only the best has one."""
    confirmed: ConfirmedConfig | None
    """What fresh runs say of it, where there were any."""


class PauseWanted(Frozen):
    """What the pause file should be."""

    paused: bool


async def _board(request: Request) -> Board:
    board: Board = request.app.state.board
    return board


TheBoard: TypeAlias = Annotated[Board, Depends(_board)]


async def _named(name: str, board: TheBoard) -> Watched:
    if name not in board.campaigns:
        known = ", ".join(board.campaigns) or "none yet"
        raise HTTPException(404, f"there is no campaign {name!r}; there are: {known}")
    return board.campaigns[name]


Named: TypeAlias = Annotated[Watched, Depends(_named)]
"""The campaign of the path's ``{name}``."""


@router.get("/healthz")
def health(board: TheBoard, response: Response) -> Health:
    """Whether the server answers, and still follows the campaigns: 503 where it does not."""
    stalled = board.silent_s() > STALLED_S
    if stalled:
        response.status_code = 503
    return Health(status="stalled" if stalled else "ok")


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(board: TheBoard) -> Response:
    """The board for Prometheus."""
    return Response(metrics_text(board), media_type="text/plain; version=0.0.4")


@router.get("/api/campaigns")
def campaigns(board: TheBoard) -> list[CampaignSummary]:
    """Every campaign, in the order found."""
    with board.lock:
        return [_summary(watched) for watched in board.campaigns.values()]


@router.get("/api/campaigns/{name}/now")
def now(
    board: TheBoard, watched: Named, trial: str = "", step: int = 0, device_after: str = ""
) -> Now:
    """How it stands: the running trial's curve after ``step`` (of ``trial``; all of another's),
    and the device's samples after the moment ``device_after``."""
    with board.lock:
        return Now(
            summary=_summary(watched),
            running=_running(watched, trial, step),
            lanes=watched.follower.lanes(),
            device=tuple(one for one in watched.device.samples if one.at > device_after),
        )


@router.get("/api/campaigns/{name}/iterations")
def iterations(
    watched: Named,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_ROWS)] = MAX_PAGE_ROWS,
) -> list[Brief]:
    """Finished iterations in order, those after the given one."""
    return watched.follower.after(after, limit)


@router.get("/api/campaigns/{name}/iterations/{number}")
def iteration(watched: Named, number: int) -> IterationRow:
    """The whole row: proposal, reason, verdict, config, trials, decision, raw replies."""
    row = watched.follower.iteration(number)
    if row is None:
        raise HTTPException(404, f"campaign {watched.name} has no iteration {number} yet")
    return row


@router.get("/api/campaigns/{name}/top")
def top(
    board: TheBoard, watched: Named, k: Annotated[int, Query(ge=1, le=100)] = 10
) -> list[Standing]:
    """The k best configs by posterior mean."""
    with board.lock:
        evidence = watched.follower.evidence
        baseline = evidence.configs.get(evidence.baseline_hash or "")
        before = baseline.config.said if baseline else None
        fresh = watched.follower.fresh()
        ranked = watched.follower.top(k)
        return [
            Standing.model_validate(
                {
                    **dict(entry),
                    "difference": {} if before is None else _changed(before, entry.config.said),
                    "from_best": _changed(ranked[0].config.said, entry.config.said),
                    "confirmed": fresh.get(entry.config_hash),
                }
            )
            for entry in ranked
        ]


@router.get("/api/campaigns/{name}/figures")
def figures(watched: Named) -> Figures:
    """The report's figures as last drawn; asking has newer ones drawn where rows landed."""
    follower = watched.follower
    return watched.album.look(follower.rows, len(follower.briefs))


@router.get("/api/campaigns/{name}/figures/{figure}.svg", response_class=Response)
def figure(watched: Named, figure: str) -> Response:
    """One of them."""
    path = watched.album.file(figure)
    if path is None:
        raise HTTPException(404, f"campaign {watched.name} has no figure {figure!r} yet")
    return Response(
        path.read_bytes(),
        media_type="image/svg+xml",
        headers={"Content-Security-Policy": FIGURE_POLICY},
    )


@router.get("/api/campaigns/{name}/happenings")
def happenings(watched: Named) -> list[EventRow]:
    """What happened to the campaign, the newest first."""
    return list(reversed(watched.follower.events))


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


async def _stream_slot(request: Request, board: TheBoard) -> AsyncIterator[None]:
    """Hold one of the event streams of the client's address until the stream ends."""
    streams, address = board.streams, request.client.host if request.client else ""
    if streams[address] >= MAX_STREAMS_OF_ADDRESS or streams.total() >= MAX_STREAMS:
        raise HTTPException(
            429,
            f"{streams.total()} event streams are open, {streams[address]} of them from {address};"
            f" at most {MAX_STREAMS} may be, {MAX_STREAMS_OF_ADDRESS} of one address. Close one,"
            " or poll /api/campaigns",
        )
    streams[address] += 1
    try:
        yield
    finally:
        streams[address] -= 1
        streams += Counter()  # drops addresses without a stream


@router.get(
    "/api/events",
    response_class=EventSourceResponse,
    dependencies=[Depends(_stream_slot)],
)
async def events(board: TheBoard) -> AsyncIterator[ServerSentEvent]:
    """A stream: each change of a campaign, with the iterations that landed."""
    yield ServerSentEvent(event="hello", data={})
    async for change in board.changes():
        landed = [brief.model_dump(mode="json") for brief in change.landed]
        data = {"campaign": change.campaign, "landed": landed, "iterations": change.iterations}
        yield ServerSentEvent(event="change", data=data)


def _summary(watched: Watched) -> CampaignSummary:
    follower = watched.follower
    campaign = follower.campaign
    return CampaignSummary(
        name=watched.name,
        directory=readable(str(follower.directory)),
        menu=campaign.menu_name if campaign else None,
        created_at=campaign.created_at if campaign else None,
        error=watched.error,
        status=follower.status(),
    )


def _changed(before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> dict[str, Scalar | None]:
    """Return the values of ``after`` that are not those of ``before``; None for one it lacks."""
    names = {**before, **after}
    return {name: after.get(name) for name in names if after.get(name) != before.get(name)}


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
