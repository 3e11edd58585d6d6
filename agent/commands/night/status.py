"""``autoresearch status``: one line per campaign."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from agent.commands.night.glance import Glance, campaigns_below, glance
from autoresearch.errors import CampaignError
from trajectory.live.follower import Follower

RUNNING, TROUBLE, AT_REST = 0, 1, 3
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
    seen = [glance(one) for one in followers]
    if watch and not as_json:
        with Live(_lines(seen), auto_refresh=False, console=Console()) as live:
            while _code(seen) == RUNNING:
                time.sleep(WATCH_S)
                seen = [glance(one) for one in followers]
                live.update(_lines(seen), refresh=True)
    else:
        _print(seen, as_json=as_json)
        while watch and _code(seen) == RUNNING:
            time.sleep(WATCH_S)
            seen = [glance(one) for one in followers]
            _print(seen, as_json=as_json)
    raise typer.Exit(_code(seen))


def _code(seen: list[Glance]) -> int:
    states = {one.state for one in seen}
    if "in trouble" in states:
        return TROUBLE
    return RUNNING if states & {"running", "paused"} else AT_REST


def _lines(seen: list[Glance]) -> Group:
    return Group(*(Text(str(one), style=_STYLES[one.state]) for one in seen))


def _print(seen: list[Glance], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([one.model_dump(mode="json", exclude={"measure"}) for one in seen]))
        return
    console = Console()
    for one in seen:
        console.print(Text(str(one), style=_STYLES[one.state]), soft_wrap=True, highlight=False)
