"""Jobs of a stand-in for Slurm: preempted, lost, refused, cancelled, left by their loop."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoresearch.errors import MachineryError, SettingsError
from tests.support import hostile
from tests.support.commands import script
from tests.support.fake_slurm import FakeSlurm, batch, fake_slurm
from tests.support.own_menus import OWN_MENU
from tests.support.places import ROOT
from tests.support.programs import finished
from tests.support.trials import trial_spec
from tests.support.waiting import wait_until
from trainer.executors.choice import choose_executor
from trainer.executors.ray import lane as ray_lane
from trainer.executors.slurm.lane import Batch, SlurmLane, SlurmLanes, open_batch
from trainer.executors.slurm.mail import PULSE_FILE, REPLY_FILE, REQUEST_FILE, get, put


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[FakeSlurm]:
    with fake_slurm(tmp_path / "slurm") as found:
        yield found


def has_begun(trial_dir: Path) -> bool:
    return (trial_dir / "trainer.log").exists()


class Told(SlurmLanes):
    """Lanes that tell what was lost, and arm the trials where they run."""

    def __init__(self, lanes: int, common: Batch) -> None:
        self.lanes = [SlurmLane(str(number), common) for number in range(lanes)]
        super().__init__(self.lanes, closing=common)
        self.lost: list[str] = []
        self.on_loss = self.lost.append

    def arm(self, lane: SlurmLane, name: str) -> Path:
        """Let the trial of this name hold on this lane, and return its folder there."""
        return hostile.arm(lane.home / name, hostile.hold)


@pytest.fixture
def two(slurm: FakeSlurm, tmp_path: Path) -> Iterator[Told]:
    with Told(2, batch(tmp_path / "session")) as executor:
        wait_until(lambda: all(lane.home != Path() for lane in executor.lanes))
        yield executor


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_preempted_trial_runs_on_another_lane_and_the_job_is_submitted_again(
    two: Told, slurm: FakeSlurm, tmp_path: Path, number: signal.Signals
) -> None:
    """USR1 is what Slurm sends before a preemption and before the time limit."""
    there = [two.arm(lane, "t1") for lane in two.lanes]
    job = two.submit(trial_spec(trial_id="t1"), tmp_path / "trials" / "t1")
    wait_until(lambda: any(map(has_begun, there)))
    first = [has_begun(place) for place in there].index(True)
    slurm.signal(number, first)
    wait_until(lambda: has_begun(there[1 - first]))
    hostile.let_go(there[1 - first])
    finished = job.result()
    assert finished.result.status == "crash"  # what the attack ends as; never `killed`
    assert finished.place is not None
    assert finished.place.lane == str(1 - first)
    assert len(two.lost) == 1
    wait_until(lambda: len(slurm.jobs()) == 2)
    assert sum(line.startswith("sbatch") for line in slurm.log()) == 3


def test_a_lost_node_is_a_lost_lane(
    two: Told, slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_lane, "_SILENCE_S", 0.5)
    there = [two.arm(lane, "t1") for lane in two.lanes]
    job = two.submit(trial_spec(trial_id="t1"), tmp_path / "trials" / "t1")
    wait_until(lambda: any(map(has_begun, there)))
    first = [has_begun(place) for place in there].index(True)
    slurm.lose(first)
    wait_until(lambda: has_begun(there[1 - first]))
    hostile.let_go(there[1 - first])
    assert job.result().result.status == "crash"
    assert len(two.lost) == 1


def test_a_refused_job_is_one_sentence_and_leaves_nothing(slurm: FakeSlurm, tmp_path: Path) -> None:
    (slurm.state / "refuse").write_text("sbatch: error: invalid account\n")
    with pytest.raises(MachineryError, match="invalid account"):
        open_batch(2, batch(tmp_path / "session", "--account=nobody"))
    assert not (tmp_path / "session").exists()
    assert "--account=nobody" in slurm.log()[0].split()
    assert slurm.jobs() == []


def test_closing_cancels_jobs_that_wait_in_the_queue(slurm: FakeSlurm, tmp_path: Path) -> None:
    (slurm.state / "hold").touch()
    with open_batch(2, batch(tmp_path / "session")) as executor:
        job = executor.submit(trial_spec(), tmp_path / "trial")
        assert not job.wait(0.2)
        assert job.place() is None, "no trial is given to a job that waits"
    assert sorted(line for line in slurm.log() if "scancel" in line) == [
        "scancel 101",
        "scancel 102",
    ]
    assert not (tmp_path / "session").exists()


def test_a_lane_whose_jobs_end_before_they_answer_is_given_up(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    common = batch(tmp_path / "session")
    common.order = common.order.__class__(token="", entry="no.module:here", lease_s=60.0)
    (slurm.state / "hold").touch()
    with open_batch(1, common) as executor:
        job = executor.submit(trial_spec(), tmp_path / "trial")
        for number in range(101, 106):
            wait_until(lambda number=number: (slurm.state / f"{number}.pid").exists())
            (slurm.state / f"{number}.pid").write_text("0")
        with pytest.raises(MachineryError):
            job.result()


def test_a_job_ends_itself_when_its_loop_is_gone(tmp_path: Path) -> None:
    room = tmp_path / "room"
    for folder in (room, tmp_path / "sent"):
        folder.mkdir()
    put(room / REQUEST_FILE, (0, "", ()))
    put(tmp_path / PULSE_FILE, 1)
    words = ("-m", "trainer.executors.slurm.worker", room, "0.5")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0
    assert get(room / REPLY_FILE)[2]


def test_a_message_that_is_half_written_is_not_read(tmp_path: Path) -> None:
    put(tmp_path / "mail", "a" * 100)
    put(tmp_path / "mail", "b")
    assert get(tmp_path / "mail") == "b"
    data = (tmp_path / "mail").read_bytes()
    (tmp_path / "mail").write_bytes(data[:-1])
    assert get(tmp_path / "mail") is None
    assert get(tmp_path / "none") is None


@pytest.mark.parametrize(("name", "lanes"), [("slurm", None), ("slurm:--partition='x", 1)])
def test_what_cannot_be_submitted_is_refused(name: str, lanes: int | None, tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        choose_executor(name, lanes=lanes, allow_unsandboxed=True, campaign=tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_a_campaign_runs_in_jobs_and_leaves_none(slurm: FakeSlurm, tmp_path: Path) -> None:
    own = script(tmp_path / "own", "import sys; print('loss', abs(float(sys.argv[1][5:]) - 0.3))")
    (own / "own.toml").write_text(OWN_MENU)
    words = ("loop", "--menu", own / "own.toml", "--iters", "2", "--baseline-seeds", "2")
    where = ("--executor", "slurm:--partition=gpu --time=1:00:00", "--lanes", "2", "--no-confirm")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path / "home"),
        "AUTORESEARCH_DATA_DIR": str(tmp_path / "data"),
        "AUTORESEARCH_LLM_API_KEY": "sesame",
    }
    done = finished(
        sys.executable, "-m", "autoresearch", *words, *where, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    campaign = tmp_path / "runs" / "own"
    lines = (campaign / "trajectory.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    places = [trial["place"] for row in rows for trial in row.get("trials", [])]
    assert {place["node"] for place in places} == {socket.gethostname()}
    assert [row["iter"] for row in rows if row["kind"] == "iteration"] == [1, 2]
    submitted = [line.split() for line in slurm.log() if line.startswith("sbatch ")]
    assert len(submitted) == 2
    assert {"--partition=gpu", "--time=1:00:00", "--no-requeue"} <= set(submitted[0])
    assert "sesame" not in (slurm.state / "environ").read_text()
    wait_until(lambda: slurm.jobs() == [])
    assert list((campaign / "slurm").iterdir()) == []
