"""Following a campaign's files shows every change exactly once, whatever happens to the journal."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.errors import JournalError
from tests.support.curves import points
from tests.support.places import NIGHT
from tests.support.present import known
from tests.support.trials import trial_spec
from tests.support.untouched import IN_ACCESS, Untouched
from tests.trajectory.live.server import append, simulated
from tests.trajectory.live.server import write_campaign as write
from trainer.schema import Budget, TrialSpec
from trajectory.formats.importing import import_campaign
from trajectory.live import growing_files
from trajectory.live.follower import Follower
from trajectory.ranking import top
from trajectory.rows import EventRow, IterationRow, Row, dump_row

JOURNAL = NIGHT / "trajectory.jsonl"


def followed(directory: Path) -> Follower:
    follower = Follower(directory)
    follower.poll()
    return follower


def iterations(rows: list[Row]) -> list[IterationRow]:
    return [row for row in rows if isinstance(row, IterationRow)]


def test_rows_are_seen_once_as_they_land(tmp_path: Path) -> None:
    rows = simulated(40)
    journal = write(tmp_path, rows[:20])
    follower = Follower(tmp_path)
    seen = [brief.iter for brief in follower.poll()]
    assert seen == [row.iter for row in iterations(rows[:20])]
    assert follower.poll() == []
    for row in rows[20:]:
        append(journal, row)
        seen += [brief.iter for brief in follower.poll()]
    assert seen == [row.iter for row in iterations(rows)]


def test_half_a_line_is_waited_for(tmp_path: Path) -> None:
    rows = simulated(12)
    last = dump_row(rows[-1])
    journal = write(tmp_path, rows[:-1])
    with journal.open("a", encoding="utf-8") as file:
        file.write(last[:100])
    follower = Follower(tmp_path)
    before = len(follower.poll())
    with journal.open("a", encoding="utf-8") as file:
        file.write(last[100:])
        file.flush()
        assert follower.poll() == []
        file.write("\n")
    assert before + len(follower.poll()) == len(iterations(rows))


def test_a_damaged_journal_is_read_once(tmp_path: Path) -> None:
    """A line of many megabytes must not be read again twice a second."""
    journal = write(tmp_path, simulated(3))
    whole = journal.read_bytes()
    journal.write_bytes(whole + b"{}\n")
    follower = Follower(tmp_path)
    with pytest.raises(JournalError):
        follower.poll()
    untouched = Untouched([journal])
    with pytest.raises(JournalError):
        follower.poll()
    assert untouched.touched() == []
    untouched.close()
    journal.write_bytes(whole)
    follower.poll()
    assert len(follower.briefs) == 3


def test_another_journal_of_that_name_is_read_anew(tmp_path: Path) -> None:
    write(tmp_path, simulated(30))
    follower = followed(tmp_path)
    other = simulated(25, seed=9)
    write(tmp_path / "elsewhere", other).replace(tmp_path / "trajectory.jsonl")
    follower.poll()
    assert follower.state.campaign == other[0]
    assert [b.iter for b in follower.briefs] == [row.iter for row in iterations(other)]


def in_flight(directory: Path, iteration: int) -> Path:
    (directory / "in_flight").mkdir(exist_ok=True)
    return directory / "in_flight" / f"{iteration:06d}.json"


def test_the_status_says_how_far_and_how_long(tmp_path: Path) -> None:
    rows = simulated(30)
    write(tmp_path, rows)
    in_flight(tmp_path, 25).write_text(json.dumps({"iter": 25, "until": 100}), "utf-8")
    follower = followed(tmp_path)
    status = follower.status()
    done = iterations(rows)
    assert status.iterations == len(done)
    assert status.until == 100
    assert status.keeps == sum(row.decision.action == "keep" for row in done)
    pace_s = known(status.pace_s)
    assert pace_s == pytest.approx(sum(row.wall_s for row in done[-20:]) / 20)
    assert status.eta_s == pytest.approx(pace_s * (100 - len(done)))
    assert status.state == "running"
    follower.pause(True)
    assert follower.status().state == "paused"
    follower.pause(False)
    follower.pause(False)
    assert follower.status().state == "running"
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    follower.poll()
    assert follower.status().state == "silent"


def test_what_was_imported_is_not_taken_to_be_running(tmp_path: Path) -> None:
    source, imported = tmp_path / "source", tmp_path / "imported"
    write(source, simulated(3))
    import_campaign(source, imported)
    follower = followed(imported)
    assert follower.status().state == "done", "its files are new, and nothing adds to them"


def test_a_campaign_is_done_at_its_goal_with_nothing_in_flight(tmp_path: Path) -> None:
    write(tmp_path, simulated(5))
    at_work = in_flight(tmp_path, 6)
    at_work.write_text(json.dumps({"iter": 6, "until": 5}), "utf-8")
    follower = followed(tmp_path)
    assert follower.status().state == "running"
    at_work.unlink()
    follower.poll()
    assert follower.status().state == "done"


def test_what_is_believed_of_a_confirmed_campaign(tmp_path: Path) -> None:
    (tmp_path / "trajectory.jsonl").write_bytes(JOURNAL.read_bytes())
    follower = followed(tmp_path)
    status, best = follower.status(), top(follower.state.evidence, 1)[0]
    assert status.state == "done", "its file is new, and no iteration came after its confirmation"
    assert known(status.incumbent).config_hash == best.config_hash
    assert status.believed_objective == status.incumbents[-1].objective == best.objective
    assert status.believed_objective != best.mean_objective
    assert status.incumbents[0].objective == status.baseline_objective
    assert status.incumbents[0].iter == 0
    low, high = known(status.baseline_lo), known(status.baseline_hi)
    assert low < known(status.baseline_objective) < high
    assert 1.9 < known(status.run_half) / known(status.sigma) < 3
    headline = status.headline
    assert headline.verdict == "confirmed"
    for amount in (headline.delta, headline.hi, headline.lo):
        assert f"{-known(amount):.4f}" in headline.title


@pytest.mark.parametrize("text", ["[]", "{", '{"until": "soon"}'])
def test_a_senseless_in_flight_file_says_nothing(tmp_path: Path, text: str) -> None:
    write(tmp_path, simulated(5))
    in_flight(tmp_path, 5).write_text(text, "latin-1")
    follower = followed(tmp_path)
    assert follower.status().until is None


def line(step: int) -> str:
    return points([3.0] * step)[-1].model_dump_json() + "\n"


def begin_trial(directory: Path, trial_id: str, steps: int) -> Path:
    trial = directory / "trials" / trial_id
    trial.mkdir(parents=True)
    spec = trial_spec(trial_id=trial_id, seed=4, budget=Budget(amount=60))
    (trial / "spec.json").write_text(spec.model_dump_json(), "utf-8")
    curve = "".join(line(step) for step in range(1, steps + 1))
    (trial / "curve.jsonl").write_text(curve, "utf-8")
    return trial


def test_the_running_trial_is_the_newest_without_a_result(tmp_path: Path) -> None:
    write(tmp_path, simulated(5))
    (begin_trial(tmp_path, "t000009", 60) / "result.json").write_text("{}", "utf-8")
    follower = followed(tmp_path)
    assert follower.running is None
    trial = begin_trial(tmp_path, "t000010", 2)
    follower.poll()
    running = known(follower.running)
    assert (running.trial_id, running.seed, running.steps) == ("t000010", 4, 60)
    with (trial / "curve.jsonl").open("a", encoding="utf-8") as curve:
        curve.write(line(3) + line(4)[:20])
        curve.flush()
        follower.poll()
        assert [one.step for one in known(follower.running).points] == [1, 2, 3]
    (trial / "result.json").write_text("{}", "utf-8")
    follower.poll()
    assert follower.running is None


def test_a_flood_of_trials_and_iterations_is_read_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing_files, "MOST_FOLLOWED", 2)
    monkeypatch.setattr(growing_files, "MOST_IDEAS_BYTES", 500)
    write(tmp_path, simulated(3))
    for number in range(200, 205):
        begin_trial(tmp_path, f"t000{number}", 3)
        in_flight(tmp_path, number).write_text("x" * 600)
    follower = Follower(tmp_path)
    untouched = Untouched(
        [*(tmp_path / "in_flight").iterdir(), *(tmp_path / "trials").glob("*/spec.json")]
    )
    follower.poll()
    uses = [line.split() for line in untouched.touched()]
    untouched.close()
    opened = {Path(path) for path, _ in uses}
    assert {path.parent.name for path in opened if path.name == "spec.json"} == {
        "t000203",
        "t000204",
    }
    assert {path.name for path in opened} == {"spec.json", "000203.json", "000204.json"}
    read = {Path(path).name for path, mask in uses if int(mask, 16) & IN_ACCESS}
    assert read == {"spec.json", "000204.json"}, "the latest says how far the loop goes"


def test_an_older_trial_that_runs_on_beside_an_ended_one_is_seen(tmp_path: Path) -> None:
    write(tmp_path, simulated(5))
    older = begin_trial(tmp_path, "t000010", 2)
    newer = begin_trial(tmp_path, "t000011", 1)
    follower = followed(tmp_path)
    assert known(follower.running).trial_id == "t000011"
    (newer / "result.json").write_text("{}", "utf-8")
    with (older / "curve.jsonl").open("a", encoding="utf-8") as curve:
        curve.write(line(3))
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.utime(path, (1e9, 1e9))
    os.utime(older / "curve.jsonl")
    again = Follower(tmp_path)
    for one in (follower, again):
        one.poll()
        running = known(one.running)
        assert running.trial_id == "t000010"
        assert [told.step for told in running.points] == [1, 2, 3]
    assert again.status().state == "running", "its curve grows, whatever the newest one does"


def test_a_trial_that_a_kill_left_is_not_at_work_for_ever(tmp_path: Path) -> None:
    rows = simulated(5)
    write(tmp_path, rows)
    begin_trial(tmp_path, "t000010", 2)
    cut = EventRow(at=rows[-1].at, event="interrupted", why="killed", trial_ids=("t000010",))
    write(tmp_path, [*rows, cut])
    follower = followed(tmp_path)
    follower.poll()
    assert follower.running is None


def test_a_pipe_or_a_link_for_a_curve_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, simulated(5))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(line(7), "utf-8")
    for trial_id, replace in (("t000010", os.mkfifo), ("t000011", elsewhere_link(elsewhere))):
        curve = begin_trial(tmp_path, trial_id, 0) / "curve.jsonl"
        curve.unlink()
        replace(curve)
        running = known(followed(tmp_path).running)
        assert (running.trial_id, running.points) == (trial_id, ())


def elsewhere_link(target: Path) -> Callable[[Path], None]:
    return lambda link: link.symlink_to(target)


def test_iterations_that_an_import_left_out_shift_no_others(tmp_path: Path) -> None:
    rows = [row for row in simulated(30) if not isinstance(row, IterationRow) or row.iter != 4]
    write(tmp_path, rows)
    follower = followed(tmp_path)
    assert [brief.iter for brief in follower.after(2, 3)] == [3, 5, 6]
    assert follower.iteration(4) is None
    for row in iterations(rows):
        assert follower.iteration(row.iter) == row


def test_a_damaged_journal_is_told_at_every_poll_and_a_missing_one_is_empty(tmp_path: Path) -> None:
    journal = write(tmp_path, simulated(10))
    journal.write_text(journal.read_text("utf-8") + "{}\n", "utf-8")
    damaged, gone = Follower(tmp_path), Follower(tmp_path / "gone")
    for _ in range(2):
        with pytest.raises(JournalError):
            damaged.poll()
    assert len(damaged.briefs) == 10
    assert gone.poll() == []


def test_a_row_of_a_journal_that_was_taken_away_is_none(tmp_path: Path) -> None:
    journal = write(tmp_path, simulated(10))
    follower = followed(tmp_path)
    journal.write_text("\n", "utf-8")
    assert follower.iteration(1) is None
    journal.unlink()
    assert follower.iteration(1) is None


def test_a_running_trial_is_named_by_its_change_and_reason(tmp_path: Path) -> None:
    write(tmp_path, simulated(5))
    trial = begin_trial(tmp_path, "t000010", 2)
    spec = TrialSpec.model_validate_json((trial / "spec.json").read_bytes())
    pending = {
        "iter": 6,
        "until": 10,
        "proposal": {"changes": {"lr": 0.003}, "reason": "a larger step"},
        "config": spec.config.model_dump(mode="json"),
    }
    in_flight(tmp_path, 6).write_text(json.dumps(pending), "utf-8")
    in_flight(tmp_path, 7).write_text(json.dumps({"iter": 7, "until": 10}), "utf-8")
    idea = known(known(followed(tmp_path).running).idea)
    assert (idea.iter, idea.changes, idea.reason) == (6, {"lr": 0.003}, "a larger step")
    in_flight(tmp_path, 6).unlink()
    assert known(followed(tmp_path).running).idea is None
