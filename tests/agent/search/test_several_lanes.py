"""Test several iterations at once with a simulated clock.

Nothing may be lost, counted twice, or compared with a reference that has been replaced.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from agent.proposers.base import Offer, SearchView
from agent.proposers.draws import RandomProposer
from agent.search.campaign import Campaign
from agent.search.stopping import Goal, Interrupted, StopRequest
from tests.support import nights
from tests.support.accounts import rest_faults
from tests.support.nights import rows_of, work, written
from tests.support.present import known
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.world import Run
from tests.support.timed import Killed
from tests.support.worlds import RateWorld
from trainer.schema import Config
from trajectory.evidence import Evidence
from trajectory.journal import read_rows
from trajectory.ranking import Noise
from trajectory.rows import IterationRow


def iterations(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == "iteration"]


def trials(rows: list[dict[str, Any]]) -> list[str]:
    of_iterations = [trial["trial_id"] for row in iterations(rows) for trial in row["trials"]]
    return [row["trial"]["trial_id"] for row in rows if row["kind"] == "baseline"] + of_iterations


def cut_short(directory: Path) -> list[str]:
    """Return the reasons why trials were interrupted."""
    return [row["why"] for row in written(directory) if row.get("event") == "interrupted"]


def check_campaign_complete(directory: Path, iters: int) -> None:
    """Check the rows, trials and index of a campaign that no process works on."""
    numbers = [row["iter"] for row in iterations(written(directory))]
    assert sorted(numbers) == list(range(1, iters + 1)), "each number once, and none lost"
    assert rest_faults(directory / "campaign") == []


@pytest.mark.parametrize("lanes", [2, 16])
def test_every_iteration_has_one_row_in_the_order_of_ending(lanes: int, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 25, lanes=lanes)
    check_campaign_complete(tmp_path, 25)
    runs = [(one["config_hash"], one["seed"]) for row in iterations(rows) for one in row["trials"]]
    assert len(set(runs)) == len(runs), "a config was trained twice on one seed"
    numbers = [row["iter"] for row in iterations(rows)]
    assert numbers != sorted(numbers), "short races overtake long ones"
    used = {trial["place"]["lane"] for row in iterations(rows) for trial in row["trials"]}
    assert used == {str(lane) for lane in range(lanes)}
    assert {row["lanes"] for row in iterations(rows)} == {lanes}


class Bunched(SimulatedExecutor):
    """Let several trials end while the loop is busy, as real trials do."""

    def advance(self) -> None:
        for _ in range(self.places):
            super().advance()


@pytest.mark.parametrize(
    ("executor", "lanes", "seed"),
    [
        (SimulatedExecutor, 4, 4),
        pytest.param(Bunched, 4, 3, marks=pytest.mark.slow),
        pytest.param(Bunched, 8, 6, marks=pytest.mark.slow),
    ],
)
def test_what_is_kept_has_beaten_the_reference_that_its_row_replaces(
    executor: type[SimulatedExecutor],
    lanes: int,
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nights, "SimulatedExecutor", executor)
    work(tmp_path, Goal(iterations=40), lanes=lanes, seed=seed)
    evidence, again = Evidence(), 0
    for row in read_rows(tmp_path / "campaign" / "trajectory.jsonl"):
        if isinstance(row, IterationRow):
            decision = row.decision
            first = "before that was replaced" in decision.explanation
            again += first
            if decision.action == "keep" or first:
                assert decision.reference_hash == evidence.incumbent_hash
            if first:
                assert row.trials
                common = {trial.seed for trial in row.trials if trial.role == "candidate"}
                known = evidence.configs[decision.reference_hash or ""].scores.keys()
                measured = {trial.seed for trial in row.trials if trial.role == "reference"}
                assert decision.pairs == len(common & (known | measured))
        evidence.add(row)
    assert again or executor is Bunched, "in this world some are judged again"
    assert evidence.incumbent_hash != evidence.baseline_hash, "some are kept"


def test_a_decision_goes_by_the_noise_of_the_rows_before_its_own(tmp_path: Path) -> None:
    rows_of(tmp_path, 30, lanes=4)
    evidence, looked = Evidence(), 0
    for row in read_rows(tmp_path / "campaign" / "trajectory.jsonl"):
        if isinstance(row, IterationRow) and row.decision.stderr is not None:
            decision, noise = row.decision, known(Noise.of(evidence))
            own = {trial.seed for trial in row.trials if trial.role == "reference"}
            reference = evidence.configs[decision.reference_hash or ""]
            runs = len(own | reference.scores.keys())
            assert noise.stderr(decision.pairs, runs) == pytest.approx(decision.stderr, rel=1e-12)
            looked += 1
        evidence.add(row)
    assert looked > 10


@pytest.mark.parametrize("lanes", [1, 5])
def test_no_more_iterations_begin_than_are_asked_for(lanes: int, tmp_path: Path) -> None:
    for iters in (1, 2, 7):
        work(tmp_path, Goal(iterations=iters), lanes=lanes)
        check_campaign_complete(tmp_path, iters)


def test_trials_end_it_once_what_is_in_flight_has_landed(tmp_path: Path) -> None:
    said = work(tmp_path, Goal(trials=30), lanes=4)
    assert "the goal of 30 trials is reached" in said
    rows = written(tmp_path)
    assert 30 <= len(trials(rows)) < 30 + 5 * 8
    check_campaign_complete(tmp_path, len(iterations(rows)))


class Seeing(RandomProposer):
    """Keep what the proposer was shown."""

    seen: ClassVar[list[tuple[int, tuple[str, ...]]]] = []

    def propose(self, view: SearchView) -> Offer:
        self.seen.append((view.iter, tuple(c.config_hash for c in view.pending)))
        assert not {c.config_hash for c in view.pending} & view.evidence.configs.keys()
        return super().propose(view)


def test_proposers_see_what_is_in_flight(tmp_path: Path) -> None:
    Seeing.seen = []
    work(tmp_path, Goal(iterations=12), lanes=3, proposer=Seeing)
    assert [number for number, _ in Seeing.seen] == list(range(1, 13))
    most = [len(pending) for _, pending in Seeing.seen]
    assert most[0] == 0
    assert set(most[4:]) == {3}, "one trial each on the lanes, and one proposal more to come"


def kill_at(moment: int) -> Callable[[str, StopRequest], None]:
    def kill(trial_id: str, _stop: StopRequest) -> None:
        if int(trial_id[1:]) >= moment:
            raise Killed

    return kill


def in_flight(directory: Path) -> list[Path]:
    return sorted((directory / "campaign" / "in_flight").glob("*"))


def check_resumed(directory: Path, more: int, lanes: int) -> None:
    """Check that a killed campaign loses nothing if it is resumed."""
    done = len(iterations(written(directory)))
    work(directory, Goal(iterations=done + more), lanes=lanes)
    check_campaign_complete(directory, done + more)


@pytest.mark.parametrize("lanes", [1, 4])
def test_killed_at_any_moment_all_that_was_in_flight_is_resumed(lanes: int, tmp_path: Path) -> None:
    rng, moment, flying = Random(lanes), 0, 0
    for _ in range(12):
        moment += rng.randint(1, 7)
        with pytest.raises(Killed):
            work(tmp_path, Goal(iterations=500), lanes=lanes, at_trial=kill_at(moment))
        flying = max(flying, len(in_flight(tmp_path)))
    check_resumed(tmp_path, 6, lanes)
    assert flying >= lanes


@pytest.mark.parametrize("lanes", [1, 4])
def test_killed_with_a_row_that_is_in_no_index_yet(lanes: int, tmp_path: Path) -> None:
    rng = Random(lanes)
    index, flying = Campaign.index, []
    for _ in range(8):
        patience, indexed = rng.randint(1, 4), -1

        def dies(self: Campaign) -> str | None:
            nonlocal patience, indexed
            iterations = self.evidence.iterations
            if 0 <= indexed < iterations:
                patience -= 1
                if patience < 0:
                    raise Killed
            indexed = iterations
            return index(self)

        with pytest.MonkeyPatch.context() as monkeypatch, pytest.raises(Killed):
            monkeypatch.setattr(Campaign, "index", dies)
            work(tmp_path, Goal(iterations=500), lanes=lanes)
        flying.append(len(in_flight(tmp_path)))
    assert max(flying) >= lanes
    check_resumed(tmp_path, 6, lanes)


def test_what_cannot_be_resumed_is_proposed_anew_under_its_number(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        work(tmp_path, Goal(iterations=50), lanes=4, at_trial=kill_at(20))
    files = in_flight(tmp_path)
    assert len(files) >= 4
    files[1].write_text("{")
    check_resumed(tmp_path, 9, 4)


def test_with_fewer_lanes_than_were_in_flight_they_take_turns(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        work(tmp_path, Goal(iterations=50), lanes=6, at_trial=kill_at(25))
    check_resumed(tmp_path, 10, 1)


def test_one_signal_lets_every_running_trial_finish_and_begins_none(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(trial_id: str, stop: StopRequest) -> None:
        if len(asked) == 0 and int(trial_id[1:]) >= 15:
            stop.ask()
        if stop.asked:
            asked.append(trial_id)

    with pytest.raises(Interrupted):
        work(tmp_path, Goal(iterations=50), lanes=4, at_trial=ask)
    assert len(asked) == 5, "the one at which it came, and those on the other lanes and waiting"
    folders = (tmp_path / "campaign" / "trials").glob("t*")
    assert all((folder / "result.json").exists() for folder in folders)
    check_resumed(tmp_path, 8, 4)
    assert not cut_short(tmp_path)


def test_a_pause_lets_iterations_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.search.scribe.PAUSE_POLL_S", 0.05)
    pause = tmp_path / "campaign" / "pause"
    flying: list[int] = []

    def at_trial(trial_id: str, _stop: StopRequest) -> None:
        if trial_id == "t000015":
            pause.touch()

    def unpaused() -> None:
        flying.append(len(in_flight(tmp_path)))
        pause.unlink()

    monkeypatch.setattr("agent.search.scribe.time.sleep", lambda _s: unpaused())
    work(tmp_path, Goal(iterations=15), lanes=3, at_trial=at_trial)
    assert flying == [0], "what was in flight landed first"
    check_campaign_complete(tmp_path, 15)
    events = [row["event"] for row in written(tmp_path) if row["kind"] == "event"]
    assert events[-2:] == ["paused", "resumed"]


# --- races that share --------------------------------------------------------------------------

OF_LANES = {"place", "lanes", "trial_id", "trial_ids"}


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


def one_by_one(directory: Path, iterations: int, lanes: int) -> list[Any]:
    """Run one race at a time, so that each sees the previous one's result on any lanes; return the
    rows without the places and numbers of their trials."""
    for done in range(1, iterations + 1):
        work(directory, Goal(iterations=done), lanes=lanes)
    return [without(row) for row in written(directory)]


@pytest.mark.parametrize("lanes", [2, pytest.param(16, marks=pytest.mark.slow)])
def test_a_race_decides_as_on_one_lane(lanes: int, tmp_path: Path) -> None:
    assert one_by_one(tmp_path / "several", 12, lanes) == one_by_one(tmp_path / "one", 12, 1)


@pytest.mark.parametrize("seed", [6, 13])
def test_a_reference_is_trained_once_for_all_races_that_want_it(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nights, "WORLD", CloseWorld())
    for goal in (2, 4, 7):
        work(tmp_path, Goal(iterations=goal), lanes=8, seed=seed, baseline_seeds=2)
    check_campaign_complete(tmp_path, 7)
    rows = iterations(written(tmp_path))
    runs = [(one["config_hash"], one["seed"]) for row in rows for one in row["trials"]]
    assert len(set(runs)) == len(runs), "a config was trained twice on one seed"
