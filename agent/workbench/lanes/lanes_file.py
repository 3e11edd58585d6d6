"""Write to a file which trial runs on which lane, for viewers in another process."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from agent.search.watcher import TrialWatcher
from agent.workbench.lanes.board import LaneBoard
from autoresearch.errors import AutoresearchError
from autoresearch.files import replace_file, writing_to
from autoresearch.layout import LANES_FILE
from trainer.spec import CurvePoint, Place, TrialSpec
from trajectory.live.lanes import LanesNow, LaneStatus
from trajectory.rows import Role, TrialRecord


class LanesFileWriter(TrialWatcher):
    """Passes every event on to another watcher, and keeps the file up to date.

    The file is only for viewers: if it cannot be written, nothing else is affected.
    """

    def __init__(self, watcher: TrialWatcher, directory: Path, lanes: int) -> None:
        """
        :param directory: the campaign's.
        :param lanes: number of concurrent trials.
        """
        self._watcher = watcher
        self._file = directory / LANES_FILE
        self._lanes = lanes
        self._board = LaneBoard()

    def trial_started(self, spec: TrialSpec, role: Role) -> None:
        self._watcher.trial_started(spec, role)
        self._board.started(spec, role)
        self._write()

    def trial_placed(self, trial_id: str, place: Place) -> None:
        self._watcher.trial_placed(trial_id, place)
        self._board.placed(trial_id, place)
        self._write()

    def trial_point(self, trial_id: str, point: CurvePoint) -> None:
        self._watcher.trial_point(trial_id, point)

    def trial_ended(self, record: TrialRecord) -> None:
        self._watcher.trial_ended(record)
        self._board.ended(record)
        self._write()

    def trial_given_up(self, trial_id: str) -> None:
        self._watcher.trial_given_up(trial_id)
        self._board.given_up(trial_id)
        self._write()

    def _write(self) -> None:
        said = tuple(
            LaneStatus(lane=lane, trial_id=shown.spec.trial_id, role=shown.role)
            if shown
            else LaneStatus(lane=lane)
            for lane, shown in self._board.by_lane()
        )
        now = LanesNow(lanes=self._lanes, said=said, waiting=self._board.waiting)
        with suppress(AutoresearchError), writing_to(self._file.parent):
            replace_file(self._file, now.model_dump_json())


def remove_lanes_file(directory: Path) -> None:
    """Remove the file, because nothing runs in this campaign any more."""
    with suppress(AutoresearchError), writing_to(directory):
        (directory / LANES_FILE).unlink(missing_ok=True)
