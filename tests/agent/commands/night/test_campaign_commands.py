import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from autoresearch.layout import IN_FLIGHT_DIR
from tests.support.campaigns import COMMAND, installed
from tests.trajectory.live.server import append, simulated, write_campaign
from trajectory.lock import CampaignLock, lock_state
from trajectory.rows import EventRow, IterationRow


def status(*arguments: str | Path) -> tuple[int, list[dict[str, Any]]]:
    """Run the command in this process."""
    done = installed("status", "--json", *arguments)
    return done.returncode, json.loads(done.stdout) if done.stdout else []


def test_each_state_has_its_exit_code(tmp_path: Path) -> None:
    rows = simulated(12)
    journal = write_campaign(tmp_path / "deep" / "er" / "first", rows)
    write_campaign(tmp_path / "second", rows)
    code, [first, second] = status(tmp_path)
    assert code == 3
    assert (first["state"], second["state"]) == ("at rest", "at rest")
    assert (first["name"], first["iterations"]) == ("first", 12)
    kept = [row for row in rows if isinstance(row, IterationRow) and row.decision.action == "keep"]
    assert first["keeps"] == len(kept)

    with CampaignLock(journal.parent):
        code, seen = status(tmp_path)
        assert (code, [one["state"] for one in seen]) == (0, ["running", "at rest"])
        (journal.parent / "pause").touch()
        code, seen = status(tmp_path)
        assert (code, seen[0]["state"]) == (0, "paused")

    append(journal, EventRow(at="", event="stopped", why="the disk is full"))
    code, seen = status(tmp_path)
    assert (code, seen[0]["state"], seen[0]["trouble"]) == (1, "in trouble", "the disk is full")

    assert status(tmp_path / "nothing") == (1, [])


def test_a_killed_process_is_trouble_and_one_that_ended_is_not(tmp_path: Path) -> None:
    directory = write_campaign(tmp_path / "c", simulated(3)).parent
    (directory / IN_FLIGHT_DIR).mkdir()
    (directory / IN_FLIGHT_DIR / "000004.json").write_text("{}")
    with CampaignLock(directory):
        assert lock_state(directory) == "held"
    assert lock_state(directory) == "free"
    assert status(directory)[0] == 3
    child = os.fork()
    if not child:
        CampaignLock(directory).acquire()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert lock_state(directory) == "abandoned"
    code, [seen] = status(directory)
    assert (code, seen["state"]) == (1, "in trouble")


def test_watching_ends_when_no_campaign_runs_any_more(tmp_path: Path) -> None:
    directory = write_campaign(tmp_path / "c", simulated(3)).parent
    words = [str(COMMAND), "status", "--json", "--watch", str(directory)]
    lock = CampaignLock(directory)
    lock.acquire()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        [running] = json.loads(watching.stdout.readline())
        lock.release()
        [*_, last] = watching.stdout
    assert running["state"] == "running"
    assert json.loads(last)[0]["state"] == "at rest"
    assert watching.returncode == 3


def propose(directory: Path, *words: str) -> tuple[int, Any]:
    done = installed("propose", f"--campaign={directory}", "--json", *words)
    return done.returncode, json.loads(done.stdout) if done.stdout else None


def test_a_possible_proposal_is_queued_listed_and_withdrawn(tmp_path: Path) -> None:
    directory = write_campaign(tmp_path / "c", simulated(6)).parent
    code, queued = propose(directory, "lr=0.00123", "--reason=a hunch", "--author=ada\x1b of X")
    assert (code, queued["author"]) == (0, "ada  of X")
    stored = json.loads((directory / "queue" / f"{queued['id']}.json").read_text())
    assert stored["proposal"]["changes"] == {"lr": 0.00123}

    before = sorted((directory / "queue").iterdir())
    for impossible in ("lr=fast", "no_such_knob=1"):
        assert propose(directory, impossible) == (1, None)
    assert sorted((directory / "queue").iterdir()) == before

    code, [listed] = propose(directory, "--list")
    assert (code, listed["id"], listed["state"]) == (0, queued["id"], "waiting")
    assert propose(directory, f"--withdraw={queued['id']}") == (0, {"withdrawn": queued["id"]})
    assert propose(directory, f"--withdraw={queued['id']}") == (1, None)


def test_the_space_is_shown_and_edited_and_an_impossible_edit_is_refused(tmp_path: Path) -> None:
    directory = write_campaign(tmp_path / "c", simulated(6)).parent

    def space(*edits: str) -> tuple[int, Any]:
        done = installed("space", f"--campaign={directory}", "--json", *edits)
        return done.returncode, json.loads(done.stdout) if done.stdout else None

    for impossible in ("lr.low=fast", "lr.low=0.5", "no_such_knob.low=1", "lr=1", "lr"):
        assert space(impossible) == (1, None)
    code, edit = space("beta2.frozen=true", 'activation.choices=["gelu", "swiglu"]', "--author=ada")
    assert (code, edit["author"], edit["knobs"]["beta2"]) == (0, "ada", {"frozen": True})
    code, shown = space()
    assert (code, shown["waiting"]) == (0, [edit])
    assert shown["knobs"]["beta2"]["domain"] is None
    assert shown["knobs"]["lr"]["domain"]["type"] == "float"
