from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.host_jobs import host_job
from trainer.parallel.hosts import launch
from trainer.parallel.hosts.job import BEAT_S, FAILURE_FILE, WATCH_FILE, Hosts, Watched

HOSTS = ("spark-1", "spark-2", "spark-3")


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a worker that stays silent and keeps running."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("silent_s", [2.6, 3.3, 3.9])
def test_the_first_hosts_giving_up_does_not_hide_who_was_lost(
    silent_s: float,
    waiting: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The third host is lost, and a collective fails here at once. The first host notices and ends
    its store before this host does, which polled last ``silent_s`` after the loss."""
    hosts = Hosts(names=HOSTS, addresses=HOSTS, this=1, interface="fast0", port=29400)
    now = 1000.0
    last_look = now + silent_s
    seen = Watched(at_s=last_look, seen_s={0: last_look, 2: now}, failed={})
    (tmp_path / WATCH_FILE).write_text(seen.model_dump_json())
    (tmp_path / FAILURE_FILE).write_text("RuntimeError: Connection closed by peer")

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    (failed,) = launch._Running(host_job(hosts), tmp_path, waiting).results()
    assert isinstance(failed, launch.HostsFailed)
    assert failed.message.startswith("spark-3 was lost: no sign of life for ")
    assert now < 1000 + 9 * BEAT_S
