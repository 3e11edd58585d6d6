"""Lanes run on a real Ray cluster on this machine, and parts of it are killed under their
trials."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from autoresearch.errors import MachineryError, SettingsError
from tests.support import hostile
from tests.support.commands import command
from tests.support.places import ROOT
from tests.support.processes import noted
from tests.support.ray_clusters import LocalNode
from tests.support.ray_lanes import Armed, Opened, opened_cluster
from tests.support.trials import trial_ok, trial_spec
from tests.support.waiting import wait_for_all_gone, wait_until
from trainer.executors.base import Job
from trainer.executors.choice import choose_executor
from trainer.executors.local import COMMAND_ENTRY
from trainer.executors.ray import cluster
from trainer.executors.ray.messages import Needs
from trainer.schema import parse_result


def test_a_word_for_who_names_no_cluster() -> None:
    pytest.importorskip("ray")
    with pytest.raises(SettingsError):
        choose_executor("ray:10.0.0.1", allow_unsandboxed=True)


@pytest.mark.slow
def test_nobody_is_waited_for_where_nobody_listens() -> None:
    pytest.importorskip("ray")
    with pytest.raises(MachineryError):
        choose_executor("ray:127.0.0.1:9", allow_unsandboxed=True)


def test_where_ray_is_not_installed_one_sentence_says_so() -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from trainer.executors.choice import choose_executor\n"
        "choose_executor('ray', allow_unsandboxed=True)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("autoresearch.errors.SettingsError: ")


def test_a_connection_without_lanes_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their threads may be more than the system allows."""
    closed: list[None] = []

    def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(cluster, "connect", lambda *_: None)
    monkeypatch.setattr(cluster, "disconnect", lambda: closed.append(None))
    monkeypatch.setattr(cluster.RayCluster, "open_lanes", lambda *_, **__: ([], {}))
    monkeypatch.setattr(cluster, "Lanes", no_thread)
    with pytest.raises(RuntimeError):
        cluster.open_cluster(None, 1, command=None, corpus=None, campaign=tmp_path)
    assert closed == [None]


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    with opened_cluster("spark1", "spark2") as opened:
        yield opened


@pytest.fixture
def lane(opened: Opened) -> Iterator[Armed]:
    """Yield a lane on the first node."""
    lanes, refused = opened.cluster.open_lanes(2, entry=hostile.ENTRY, allow_unsandboxed=True)
    assert refused == {}
    assert [lane.place.lane for lane in lanes] == ["spark1:cpu0", "spark2:cpu0"]
    lanes[1].close()
    with Armed(lanes[0]) as first:
        yield first


def spread(lane: Armed, folder: Path) -> tuple[Job, list[psutil.Process]]:
    """Start a trial that ignores SIGTERM and has three descendants; return once all of them run."""
    job = lane.submit(trial_spec(), hostile.arm(folder, hostile.spread, stay=True, deaf=True))
    wait_until(lambda: len(noted(folder)) == 4)
    return job, [psutil.Process(pid) for pid in noted(folder)]


def kill_actor(node: LocalNode) -> None:
    for actor in node.actors():
        actor.kill()


def kill_server(node: LocalNode) -> None:
    for server in node.processes("trainer.isolation.forkserver"):
        server.kill()


def stop_actor(node: LocalNode) -> None:
    """Stop a process, which answers no more than one behind a cut cable."""
    for actor in node.actors():
        actor.suspend()


@pytest.mark.slow
@pytest.mark.parametrize("how", [kill_actor, kill_server, stop_actor, LocalNode.lose])
def test_a_lost_lane_loses_its_trial_leaves_nothing_and_recovers(
    opened: Opened, lane: Armed, tmp_path: Path, how: Callable[[LocalNode], None]
) -> None:
    """The trial runs again; nothing that the lost one says late is written here."""
    job, trial = spread(lane, tmp_path / "t1")
    node = opened.nodes.nodes["spark1"]
    stopped = node.actors() if how is stop_actor else []
    lost: list[str] = []
    lane.on_loss = lost.append
    how(node)
    wait_until(lambda: bool(lost))
    for actor in stopped:
        actor.resume()
    if how is LocalNode.lose:
        opened.nodes.add("spark1")
    wait_for_all_gone(trial)
    assert job.result().result.status == "crash", "nobody armed the second attempt"
    spec = trial_spec()
    text = trial_ok(spec).model_dump_json()
    there = hostile.arm(tmp_path / "t2", hostile.leave_result, text=text)
    assert lane.submit(spec, there).result().result == trial_ok(spec)
    assert parse_result((there / "result.json").read_bytes()) == trial_ok(spec)


DRIVER = """
import sys, time
from pathlib import Path
from tests.support import hostile
from tests.support.commands import command
from tests.support.ray_clusters import LocalNode
from tests.support.ray_lanes import Armed
from tests.support.trials import trial_spec
from trainer.executors.ray.cluster import RayCluster
address, folder = sys.argv[1:]
cluster = RayCluster(address)
[lane], _ = cluster.open_lanes(1, entry=hostile.ENTRY, allow_unsandboxed=True)
trial = hostile.arm(Path(folder), hostile.spread, stay=True, deaf=True)
Armed(lane).submit(trial_spec(), trial)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_driver_leaves_no_trial(opened: Opened, tmp_path: Path, how: signal.Signals) -> None:
    """Ray considers a stopped driver alive, so only the lease ends the trial."""
    told = [opened.nodes.address, str(tmp_path / "t1")]
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, *told], cwd=ROOT)
    folder = tmp_path / "t1"
    try:
        wait_until(lambda: driver.poll() is not None or len(noted(folder)) == 4)
        assert driver.poll() is None
        trial = [psutil.Process(pid) for pid in noted(folder)]
        os.kill(driver.pid, how)
        wait_for_all_gone(trial)
    finally:
        driver.kill()
        driver.wait()


@pytest.mark.slow
def test_lanes_machines_and_programs_that_no_node_has_are_refused(opened: Opened) -> None:
    with pytest.raises(SettingsError):
        opened.cluster.open_lanes(99, allow_unsandboxed=True)
    with pytest.raises(SettingsError):
        opened.cluster.open_lanes(1, kind="a machine that nobody has", allow_unsandboxed=True)
    needs = Needs(command(argv=("/opt/none/python",), reads=("/",)))
    with pytest.raises(SettingsError, match=r"spark1: .*/opt/none/python"):
        opened.cluster.open_lanes(1, entry=COMMAND_ENTRY, needs=needs, allow_unsandboxed=True)
