"""``autoresearch status``: one line per campaign; programs get the same numbers."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from agent.session.console import answer
from autoresearch.campaign_files import status_of
from autoresearch.closing import gc_paused
from autoresearch.errors import AutoresearchError, CampaignError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.safe_text import plain
from autoresearch.values import Frozen
from autoresearch.words import counted, duration_text, rate_text
from trainer.schema import BPB, Measure
from trajectory.headline import Conclusion
from trajectory.live.follower import SILENT_S, Follower
from trajectory.lock import lock_state
from trajectory.proposals import MODEL
from trajectory.track_record import TrackRecord


class Glance(Frozen):
    """A campaign at one moment, in few numbers."""

    name: str
    directory: str
    state: Literal["running", "paused", "at rest", "in trouble"]
    """``in trouble``: an error or a kill ended its last session, or it cannot be read."""
    trouble: str | None = None
    iterations: int = 0
    until: int | None = None
    """Number of iterations that the loop is to reach; None if unknown."""
    keeps: int = 0
    unit: str = BPB.unit
    gain: float | None = None
    """Difference from the baseline, in scores, of the config whose result is reported; None before
    any."""
    verdict: Conclusion = "nothing measured"
    """Whether the gain is confirmed, refuted or only claimed."""
    headline: str = ""
    """The campaign's result in one line."""
    confirmed: bool = False
    """Whether the gain was measured on fresh runs and held."""
    iterations_per_h: float | None = None
    model_iterations: int = 0
    model_keeps: int = 0
    silent_s: float = 0.0
    """Seconds since a file of the campaign changed."""
    ends_at: str | None = None
    """Expected end, ISO 8601, UTC; None if it does not run or its end is unknown."""
    measure: Measure = BPB

    def __str__(self) -> str:
        """Return ``cpu-tiny  57/100 · 5 kept · -0.4123 bpb claimed · 976/h · running``."""
        of = "" if self.until is None else f"/{self.until}"
        parts = [f"{self.name}  {self.iterations}{of}", f"{self.keeps} kept"]
        if self.gain is not None:
            gain = f"{self.gain:+.{self.measure.digits}f} {self.measure.short}"
            parts.append(f"{gain} {self.verdict}")
        if self.iterations_per_h is not None:
            parts.append(f"{rate_text(self.iterations_per_h)}/h")
        if self.model_iterations:
            parts.append(f"model {counted(self.model_iterations, 'turn')}, {self.model_keeps} kept")
        if self.ends_at is not None:
            end = datetime.fromisoformat(self.ends_at).astimezone()
            is_today = end.date() == datetime.now().astimezone().date()
            parts.append(f"ends {end:%H:%M}" if is_today else f"ends {end:%a %H:%M}")
        elif self.state == "running" and self.silent_s >= SILENT_S:
            parts.append(f"running, silent for {duration_text(self.silent_s)}")
        else:
            parts.append(self.state)
        return plain(" · ".join(parts) + (f": {self.trouble}" if self.trouble else ""))


def campaigns_below(places: list[Path]) -> Iterator[Path]:
    """Yield every campaign's directory in or below these folders, in order of name."""
    waiting = places[::-1]
    while waiting:  # os.walk calls itself, which a deep tree ends with an error
        here, folders = waiting.pop(), []
        with suppress(OSError), os.scandir(here) as entries:
            folders = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
        status = status_of(here, JOURNAL_FILE)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            yield here
        else:
            waiting += (here / name for name in sorted(folders, reverse=True))


def glance(follower: Follower) -> Glance:
    """Read on, and return the campaign as it is now."""
    directory, trouble = follower.directory, None
    try:
        with gc_paused():
            follower.poll()
    except AutoresearchError as error:
        trouble = str(error)
    trouble = trouble or follower.trouble
    status, evidence = follower.status(), follower.state.evidence
    state: Literal["running", "paused", "at rest", "in trouble"] = "at rest"
    if trouble is not None:
        state = "in trouble"
    elif lock_state(directory) == "held":
        state = "paused" if follower.paused else "running"
    campaign = follower.state.campaign
    measure = campaign.measured_in if campaign else BPB
    result = status.headline
    model = evidence.track_records.get(MODEL, TrackRecord())
    ends_at = None
    if state == "running" and status.eta_s:
        ends_at = (datetime.now(UTC) + timedelta(seconds=status.eta_s)).isoformat(
            timespec="minutes"
        )
    return Glance(
        name=directory.resolve().name,
        directory=str(directory),
        state=state,
        trouble=trouble,
        iterations=status.iterations,
        until=status.until if state != "at rest" else None,
        keeps=status.keeps,
        unit=measure.unit,
        gain=None if result.delta is None else measure.score(result.delta),
        verdict=result.verdict,
        headline=result.line,
        confirmed=result.verdict == "confirmed",
        iterations_per_h=3600 / status.pace_s if status.pace_s else None,
        model_iterations=model.assigned,
        model_keeps=model.kept,
        silent_s=status.silent_s,
        ends_at=ends_at,
        measure=measure,
    )


TROUBLE, AT_REST = 1, 3
WATCH_S = 2.0
_STYLES = {"running": "green", "paused": "yellow", "at rest": "", "in trouble": "red"}


def status(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Campaigns, or folders with campaigns at any depth. Default: runs.",
            show_default=False,
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Update until no campaign runs any more.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array a reading.")] = False,
) -> None:
    """Show one line per campaign: progress, gain, pace, end.

    Exit code 0: a campaign runs or is paused. 3: all are at rest. 1: an error or a kill ended one.
    """
    places = places or [Path("runs")]
    followers = [Follower(one) for one in campaigns_below(places)]
    if not followers:
        where = ", ".join(map(str, places))
        raise CampaignError(
            f"there is no campaign in or below {where}; choose another folder, or start one with: "
            "autoresearch loop"
        )
    live = Live(auto_refresh=False, console=Console()) if watch and not as_json else None
    with live or nullcontext():
        while True:
            with gc_paused():
                seen = [glance(one) for one in followers]
                if not watch:
                    followers.clear()  # or a collection would scan every config once more
            texts = [Text(str(one), style=_STYLES[one.state]) for one in seen]
            if live is not None:
                live.update(Group(*texts), refresh=True)
            else:
                fields = [one.model_dump(mode="json", exclude={"measure"}) for one in seen]
                answer(fields, texts, as_json=as_json)
            states = {one.state for one in seen}
            if "in trouble" in states:
                raise typer.Exit(TROUBLE)
            if not states & {"running", "paused"}:
                raise typer.Exit(AT_REST)
            if not watch:
                return
            time.sleep(WATCH_S)
