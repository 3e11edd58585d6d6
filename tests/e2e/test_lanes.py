"""Run several trials at once, through the installed command with real trials."""

from __future__ import annotations

import json
import os
import signal
import tomllib
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.accounts import check_campaign_complete
from tests.support.campaigns import Toy
from tests.support.waiting import wait_for_all_gone, wait_until

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="lanes have a core each, and there is one"
)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    toy = Toy(tmp_path)
    toy.menu.write_text(toy.menu.read_text().replace("6 steps", "150 steps"))
    return toy


def below(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def in_flight(toy: Toy) -> int:
    return len(list((toy.campaign / "in_flight").glob("*.json")))


def affinities(pid: int) -> set[tuple[int, ...]]:
    """Return the CPU affinities of the running trials and of the servers that fork them."""
    found = set()
    for process in below(pid):
        try:
            found.add(tuple(process.cpu_affinity()))
        except psutil.NoSuchProcess:
            continue
    return found


def _disjoint(pid: int) -> list[tuple[int, ...]]:
    """Return the sets of cores in use, or nothing if two of them overlap."""
    found = list(affinities(pid))
    cores = [core for one in found for core in one]
    return found if len(set(cores)) == len(cores) else []


@pytest.mark.slow
def test_each_lane_has_cores_of_its_own_and_a_server_that_dies_costs_no_trial(toy: Toy) -> None:
    each = len(os.sched_getaffinity(0)) // 2
    running = toy.start(4, "--lanes=2", "--json")
    # A new server has not bound itself to its cores yet.
    wait_until(lambda: [len(set(one)) for one in _disjoint(running.pid)] == [each, each])
    wait_until(lambda: bool(_training(toy)))
    psutil.Process(running.pid).children()[0].kill()
    output, _ = running.communicate()
    assert running.returncode == 0, output
    check_campaign_complete(toy, 4)
    assert not [row for row in toy.rows("event") if row["event"] == "interrupted"]
    places = [trial["place"] for row in toy.iterations() for trial in row["trials"]]
    assert {place["lane"] for place in places} == {"0", "1"}
    assert {row["lanes"] for row in toy.iterations()} == {2}
    assert tomllib.loads((toy.campaign / "campaign.toml").read_text())["lanes"] == 2

    alone = toy.loop(5, "--lanes=1")
    assert alone.returncode == 0, alone.stderr
    last = toy.iterations()[-1]
    assert "lanes" not in last
    assert all("place" not in trial for trial in last["trials"])

    # What auto finds is kept, and not measured again.
    assert toy.loop(6, "--lanes=auto").returncode == 0
    kept = tomllib.loads((toy.campaign / "campaign.toml").read_text())["lanes"]
    assert toy.loop(7).returncode == 0
    assert [row.get("lanes", 1) for row in toy.iterations()[-2:]] == [kept, kept]


def _training(toy: Toy) -> list[Path]:
    """Return the trials that train now."""
    curves = (toy.campaign / "trials").glob("t*/curve.jsonl")
    return [path for path in curves if not path.with_name("result.json").exists()]


def _begun(toy: Toy) -> set[str]:
    return {path.name for path in (toy.campaign / "trials").glob("t*")}


@pytest.mark.slow
def test_killed_with_several_in_flight_nothing_is_lost_or_counted_twice(toy: Toy) -> None:
    iterations = 0
    for _ in range(2):
        left = _begun(toy)
        running = toy.start(iterations + 40, "--lanes=2")
        wait_until(lambda: in_flight(toy) >= 2 and len(_begun(toy) - left) > 2)  # noqa: B023
        servers = below(running.pid)
        os.kill(running.pid, signal.SIGKILL)
        running.communicate()
        wait_for_all_gone(servers)
        lines = (toy.campaign / "trajectory.jsonl").read_bytes().split(b"\n")
        whole: list[dict[str, Any]] = [json.loads(line) for line in lines[:-1]]
        iterations = sum(row["kind"] == "iteration" for row in whole)
    final = toy.loop(iterations + 4, "--lanes=2")
    assert final.returncode == 0, final.stderr
    assert in_flight(toy) == 0
    check_campaign_complete(toy, iterations + 4)
