"""Check that speculative seeds of a race use only idle lanes and lead to the decisions of one lane,
sooner."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from agent.search.iterations import Iteration
from agent.search.scheduler import Scheduler
from agent.search.scribe import Afterwards
from agent.search.stopping import Goal
from agent.workbench.progress import LaneBoard
from tests.agent.search.test_several_lanes import Killed, check_campaign_complete
from tests.support import nights
from tests.support.nights import work, written
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.world import Run
from tests.support.worlds import RateWorld
from trainer.spec import Config, TrialSpec
from trajectory.rows import IterationRow, Role, TrialRecord

OF_LANES = {"place", "lanes", "trial_id", "trial_ids"}


class Clocked(SimulatedExecutor):
    """Add up the seconds of its trials by the lanes' clock."""

    total_s = 0.0

    def close(self) -> None:
        type(self).total_s += self.now_s
        super().close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clocked]:
    monkeypatch.setattr(nights, "SimulatedExecutor", Clocked)
    Clocked.total_s = 0.0
    return Clocked


def without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without(one) for name, one in value.items() if name not in OF_LANES}
    return [without(one) for one in value] if isinstance(value, list) else value


def decided(directory: Path) -> list[dict[str, Any]]:
    """Return the rows without the places and numbers of their trials."""
    rows = [row for row in written(directory) if row.get("event") != "not_needed"]
    return [without(row) for row in rows]


def one_by_one(directory: Path, iterations: int, lanes: int) -> None:
    """Run one race at a time, so that each sees the previous one's result on any lanes."""
    for done in range(1, iterations + 1):
        work(directory, Goal(iterations=done), lanes=lanes)


@pytest.mark.parametrize("lanes", [2, pytest.param(16, marks=pytest.mark.slow)])
def test_a_race_decides_as_on_one_lane_and_sooner(
    lanes: int, tmp_path: Path, clock: type[Clocked], monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one(tmp_path / "one", 12, 1)
    one_by_one(tmp_path / "several", 12, lanes)
    ahead_s, clock.total_s = clock.total_s, 0.0
    assert decided(tmp_path / "several") == decided(tmp_path / "one")
    check_campaign_complete(tmp_path / "several", 12)
    monkeypatch.setattr(Scheduler, "speculate", lambda *_, **__: None)
    one_by_one(tmp_path / "patient", 12, lanes)
    assert decided(tmp_path / "patient") == decided(tmp_path / "one")
    assert ahead_s < clock.total_s


def test_nothing_runs_ahead_that_a_wanted_trial_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished, most = Scheduler.finished, [0]

    def watched(
        scheduler: Scheduler, *, more_comes: bool, meanwhile: Callable[[], None]
    ) -> list[Iteration]:
        ahead = len(scheduler.speculative)
        most[0] = max(most[0], ahead)
        assert not ahead or ahead + len(scheduler.wanted) <= scheduler.runner.places
        return finished(scheduler, more_comes=more_comes, meanwhile=meanwhile)

    monkeypatch.setattr(Scheduler, "finished", watched)
    for goal in (2, 9, 10, 24):
        work(tmp_path, Goal(iterations=goal), lanes=5)
    check_campaign_complete(tmp_path, 24)
    assert most[0] >= 2, "some ran ahead, or nothing was tested"


def test_what_ran_ahead_and_was_not_needed_counts_for_nothing(tmp_path: Path) -> None:
    one_by_one(tmp_path, 12, 5)
    rows = written(tmp_path)
    spared = [one for row in rows if row.get("event") == "not_needed" for one in row["trial_ids"]]
    assert spared
    rest = json.dumps([row for row in rows if row.get("event") != "not_needed"])
    assert not [one for one in spared if f'"{one}"' in rest]


class CloseWorld(RateWorld):
    """A world of nearly equal configs, so that races are long, with trials of different length."""

    def truth(self, config: Config) -> float:
        return 3.0 + 0.05 * Random(config.config_hash).random()

    def run(self, config: Config, seed: int) -> Run:
        draw = Random(f"{config.config_hash}:{seed}")
        return Run(2 + 8 * draw.random(), self.truth(config) + draw.gauss(0, 0.05))


@pytest.mark.parametrize("seed", [6, 13])
def test_a_reference_that_ran_ahead_is_shared_by_all_that_want_it(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nights, "WORLD", CloseWorld())
    for goal in (2, 4, 7):
        work(tmp_path, Goal(iterations=goal), lanes=8, seed=seed, baseline_seeds=2)
    check_campaign_complete(tmp_path, 7)
    rows = [row for row in written(tmp_path) if row["kind"] == "iteration"]
    runs = [(one["config_hash"], one["seed"]) for row in rows for one in row["trials"]]
    assert len(set(runs)) == len(runs), "a config was trained twice on one seed"


@pytest.mark.parametrize("last", [1, 3, 6])
def test_what_ran_ahead_is_accounted_for_whenever_the_work_is_killed(
    last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_rows, write = [0], Afterwards.write

    def killed(afterwards: Afterwards, row: IterationRow) -> None:
        write(afterwards, row)
        written_rows[0] += 1
        if written_rows[0] == last:
            raise Killed

    monkeypatch.setattr(nights, "WORLD", CloseWorld())
    monkeypatch.setattr(Afterwards, "write", killed)
    with pytest.raises(Killed):
        work(tmp_path, Goal(iterations=last), lanes=8, seed=7, baseline_seeds=2)
    work(tmp_path, Goal(iterations=last), lanes=8, seed=7, baseline_seeds=2)
    check_campaign_complete(tmp_path, last)


class OnBoard(nights.Onlooker):
    """Show trials as a screen does."""

    board: ClassVar[LaneBoard]
    given_up: ClassVar[list[str]]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        type(self).board, type(self).given_up = LaneBoard(), []

    def trial_started(self, spec: TrialSpec, role: Role) -> None:
        super().trial_started(spec, role)
        self.board.started(spec, role)

    def trial_ended(self, record: TrialRecord) -> None:
        super().trial_ended(record)
        self.board.left(record.trial_id, record.wall_s)

    def trial_given_up(self, trial_id: str) -> None:
        super().trial_given_up(trial_id)
        self.board.left(trial_id)
        self.given_up.append(trial_id)


def test_what_was_given_up_is_not_shown_as_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nights, "WORLD", CloseWorld())
    monkeypatch.setattr(nights, "Onlooker", OnBoard)
    work(tmp_path, Goal(iterations=30), lanes=4)
    rows = written(tmp_path)
    spared = {one for row in rows if row.get("event") == "not_needed" for one in row["trial_ids"]}
    assert OnBoard.given_up
    assert set(OnBoard.given_up) <= spared
    # Every trial that is still shown was being cancelled when the campaign ended.
    assert OnBoard.board.trials.keys() <= spared - set(OnBoard.given_up)
