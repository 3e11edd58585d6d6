"""Trials that currently run on each lane, from a file that the running command writes.

The journal's rows record where trials ran after they end. Meanwhile ``lanes.json`` records it, and
it is removed when nothing runs. After a kill it remains, so its entries are used only for trials
that have no result yet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ConfigDict, ValidationError

from autoresearch.files import open_regular
from autoresearch.layout import LANES_FILE, in_flight_files
from autoresearch.values import Frozen, NonNegativeInt, PositiveInt
from trainer.spec import AnyConfig
from trajectory.live.trial import RunningTrial
from trajectory.rows import Role

MAX_BYTES = 1 << 20


class LaneStatus(Frozen):
    """A lane, and the trial on it, if any."""

    lane: str
    trial_id: str | None = None
    role: Role | None = None


class LanesNow(Frozen):
    """The file's content."""

    lanes: PositiveInt
    """Trials that can run at the same time."""
    said: tuple[LaneStatus, ...]
    """Lanes that have had a trial so far, by name."""
    waiting: NonNegativeInt
    """Trials that wait for a lane."""


class LaneView(Frozen):
    """A lane, and the trial on it; None if it is free."""

    lane: str
    trial_id: str | None = None
    role: Role | None = None
    iter: int | None = None
    """The iteration whose candidate it trains; None for a reference, and outside the loop."""
    seed: int | None = None
    step: int | None = None
    """The latest step of its curve; None if the curve is empty."""
    steps: int | None = None


class LanesSeen(Frozen):
    """All lanes at one moment."""

    lanes: tuple[LaneView, ...]
    waiting: NonNegativeInt
    """Trials that wait for a lane."""


def read_lanes(directory: Path) -> LanesNow | None:
    """Return the lanes file's content; None if it is missing or invalid."""
    try:
        with os.fdopen(open_regular(directory / LANES_FILE, through_links=False), "rb") as file:
            return LanesNow.model_validate_json(file.read(MAX_BYTES))
    except (OSError, ValidationError):
        return None


def lane_views(
    now: LanesNow, running: Sequence[RunningTrial], iterations: Mapping[str, int]
) -> tuple[LaneView, ...]:
    """Return the state of each lane.

    :param running: the trials that have no result.
    :param iterations: iterations in flight, by the hash of their candidates.
    """
    known = {one.trial_id: one for one in running}
    views = []
    for said in now.said:
        trial = known.get(said.trial_id or "")
        if trial is None:
            views.append(LaneView(lane=said.lane))
            continue
        views.append(
            LaneView(
                lane=said.lane,
                trial_id=said.trial_id,
                role=said.role,
                iter=iterations.get(trial.config_hash) if said.role == "candidate" else None,
                seed=trial.seed,
                step=trial.points[-1].step if trial.points else None,
                steps=trial.steps,
            )
        )
    return tuple(views)


class InFlight:
    """Candidates of the iterations in flight; each file is read once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, tuple[str, int] | None] = {}

    def iterations(self) -> dict[str, int]:
        """Return the iterations in flight by candidate hash, without unreadable files."""
        files = in_flight_files(self._directory)
        self._known = {file.name: self._known.get(file.name) or _candidate(file) for file in files}
        return dict(found for found in self._known.values() if found is not None)


class _InFlightFile(Frozen):
    """The fields read from the file of an iteration in flight."""

    model_config = ConfigDict(extra="ignore")

    iter: int
    config: AnyConfig | None


def _candidate(file: Path) -> tuple[str, int] | None:
    try:
        with os.fdopen(open_regular(file, through_links=False), "rb") as opened:
            found = _InFlightFile.model_validate_json(opened.read(MAX_BYTES))
    except (OSError, ValidationError):
        return None
    return None if found.config is None else (found.config.config_hash, found.iter)
