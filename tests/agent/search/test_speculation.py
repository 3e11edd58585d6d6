import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agent.search.race import Race, Wanted
from agent.search.scribe import Scribe
from agent.search.stopping import Goal
from agent.search.trials import TrialRunner
from tests.agent.search.test_several_lanes import check_campaign_complete
from tests.support import nights
from tests.support.nights import work, written
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.world import Run
from tests.support.timed import Killed
from tests.support.worlds import RateWorld
from trainer.spec import Config
from trajectory.rows import IterationRow, Row

OF_LANES = {"place", "lanes", "trial_id", "trial_ids"}


class Clocked(SimulatedExecutor):
    """Add up the seconds of its trials by the lanes' clock."""

    total_s = 0.0

    def close(self) -> None:
        type(self).total_s += self.now_s
        super().close()


class CloseWorld(RateWorld):
    """A world of nearly equal configs, so that races are long, with trials of different length."""

    def truth(self, config: Config) -> float:
        return 3.0 + 0.05 * Random(config.config_hash).random()

    def run(self, config: Config, seed: int) -> Run:
        draw = Random(f"{config.config_hash}:{seed}")
        return Run(2 + 8 * draw.random(), self.truth(config) + draw.gauss(0, 0.05))


def without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without(one) for name, one in value.items() if name not in OF_LANES}
    return [without(one) for one in value] if isinstance(value, list) else value


def decided(directory: Path) -> list[dict[str, Any]]:
    """Return the rows without the places and numbers of their trials."""
    rows = [row for row in written(directory) if row.get("event") != "not_needed"]
    return [without(row) for row in rows]


def unneeded(directory: Path) -> list[str]:
    rows = [row for row in written(directory) if row.get("event") == "not_needed"]
    return [trial_id for row in rows for trial_id in row["trial_ids"]]


def one_by_one(directory: Path, iterations: int, lanes: int) -> None:
    """Run one race at a time, so that each sees the previous one's result on any lanes."""
    for done in range(1, iterations + 1):
        work(directory, Goal(iterations=done), lanes=lanes)


@pytest.mark.parametrize("lanes", [2, pytest.param(16, marks=pytest.mark.slow)])
def test_a_race_decides_as_on_one_lane_and_sooner(
    lanes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nights, "SimulatedExecutor", Clocked)
    one_by_one(tmp_path / "one", 12, 1)
    Clocked.total_s = 0.0
    one_by_one(tmp_path / "several", 12, lanes)
    speculative_s, Clocked.total_s = Clocked.total_s, 0.0
    assert decided(tmp_path / "several") == decided(tmp_path / "one")
    check_campaign_complete(tmp_path / "several", 12)
    monkeypatch.setattr(Race, "upcoming", lambda _race: iter(()))
    one_by_one(tmp_path / "patient", 12, lanes)
    assert decided(tmp_path / "patient") == decided(tmp_path / "one")
    assert speculative_s < Clocked.total_s


def test_speculative_trials_take_only_idle_lanes_and_count_for_nothing_if_unneeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speculate, most = TrialRunner.speculate, [0]

    def watched(runner: TrialRunner, upcoming: Iterable[Wanted], *, starts: bool) -> None:
        speculate(runner, upcoming, starts=starts)
        running = [one for one in runner._unclaimed.values() if not one.job.done()]
        speculative = [one for one in runner._speculative.values() if not one.job.done()]
        assert not speculative or len(running) <= runner.places
        most[0] = max(most[0], len(speculative))

    monkeypatch.setattr(TrialRunner, "speculate", watched)
    for goal in (2, 9, 10, 24):
        work(tmp_path, Goal(iterations=goal), lanes=5)
    check_campaign_complete(tmp_path, 24)
    assert most[0] >= 2, "some were speculative, or nothing was tested"
    spared = unneeded(tmp_path)
    assert spared
    rest = json.dumps([row for row in written(tmp_path) if row.get("event") != "not_needed"])
    assert not [one for one in spared if f'"{one}"' in rest]


@pytest.mark.parametrize("seed", [6, 13])
def test_a_speculative_reference_is_shared_by_all_that_want_it(
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
def test_every_speculative_trial_is_in_a_row_whenever_the_work_is_killed(
    last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, record = [0], Scribe.record

    def killed(scribe: Scribe, row: Row) -> None:
        record(scribe, row)
        rows[0] += isinstance(row, IterationRow)
        if isinstance(row, IterationRow) and rows[0] == last:
            raise Killed

    monkeypatch.setattr(nights, "WORLD", CloseWorld())
    monkeypatch.setattr(Scribe, "record", killed)
    with pytest.raises(Killed):
        work(tmp_path, Goal(iterations=last), lanes=8, seed=7, baseline_seeds=2)
    work(tmp_path, Goal(iterations=last), lanes=8, seed=7, baseline_seeds=2)
    check_campaign_complete(tmp_path, last)
