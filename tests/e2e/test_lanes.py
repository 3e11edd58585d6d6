import json
import os
import signal
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
    # A fork server that dies costs no trial.
    left = _begun(toy)
    running = toy.start(iterations + 4, "--lanes=2")
    curves = (toy.campaign / "trials").glob
    wait_until(lambda: {path.parent.name for path in curves("t*/curve.jsonl")} - left)
    psutil.Process(running.pid).children()[0].kill()
    output, _ = running.communicate()
    assert running.returncode == 0, output
    assert in_flight(toy) == 0
    lost = [row["trial_ids"] for row in toy.rows("event") if row["event"] == "interrupted"]
    assert {trial for trials in lost for trial in trials} <= left
    check_campaign_complete(toy, iterations + 4)
