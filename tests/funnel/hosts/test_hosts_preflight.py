"""The installed command runs ``preflight --hosts`` on hosts that are network namespaces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.network_hosts import Wire, why_not, wired

COMMAND = ("preflight", "--device", "cpu", "--meet", "60")


@pytest.fixture
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with wired(getattr(request, "param", 2)) as made:
        yield made


def workers() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if "trainer.parallel.hosts.worker" in line:
            found.append(process)
    return found


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate()
    finally:
        process.kill()
    return process.returncode, out, err


def sentence(err: str) -> str:
    """Return the only line of the error output."""
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == 1, err
    return lines[0]


def layouts(answer: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(layout["layout"], layout["passed"]) for layout in answer["layouts"]]


@pytest.mark.slow
def test_two_hosts_train_alike_and_their_link_is_measured_at_what_it_is(
    wire: Wire, tmp_path: Path
) -> None:
    wire.limit("200mbit")  # a rate that two busy cores can saturate
    both = [
        wire.start(place, *COMMAND, "--hosts", wire.text, "--json", cwd=tmp_path)
        for place in (0, 1)
    ]
    ended = [finished(process) for process in both]
    assert [code for code, _, _ in ended] == [0, 0], ended
    answers = [json.loads(out) for _, out, _ in ended]
    for place, answer in enumerate(answers):
        assert answer["hosts"]["this"] == place
        assert answer["hosts"]["interface"] == "fast0"
        assert layouts(answer) == [
            ("single process", True),
            ("DDP over 2 hosts", True),
            ("FSDP2 over 2 hosts", True),
            ("control: DDP, not averaged", True),
        ]
        control = answer["layouts"][-1]
        assert control["loss_difference"] > 1e-3, "the comparison can tell"
        assert 0 < answer["link"]["bus_gbit_s"] < 0.2
        assert answer["link"]["share_of_a_port"] == pytest.approx(answer["link"]["bus_gbit_s"] / 96)
        assert "--device cuda" in answer["link"]["advice"][0]
    assert answers[0]["link"]["speed"] == answers[1]["link"]["speed"], "the slowest host's"


@pytest.mark.slow
@pytest.mark.parametrize("wire", [3], indirect=True)
def test_a_host_that_is_killed_is_one_sentence_on_the_others(wire: Wire, tmp_path: Path) -> None:
    """With three hosts the message must identify the killed one; a guess would not do."""
    wire.limit("20mbit")  # slow enough that the transfer is still in progress
    three = [wire.start(place, *COMMAND, "--hosts", wire.text, cwd=tmp_path) for place in (0, 1, 2)]
    for line in iter(three[2].stdout.readline, ""):  # type: ignore[union-attr]
        if line.startswith("single process"):
            break
    for process in (*psutil.Process(three[2].pid).children(recursive=True), three[2]):
        process.send_signal(signal.SIGKILL)
    for process in three[:2]:
        code, _, err = finished(process)
        assert code == 1, err
        assert f"{wire.addresses[2]} was lost: no sign of life for" in sentence(err)
    three[2].communicate()
    assert not workers()


@pytest.mark.slow
def test_a_pulled_cable_is_a_lost_host_on_both_ends(wire: Wire, tmp_path: Path) -> None:
    """Neither end receives anything more, not even a closed connection."""
    wire.limit("20mbit")
    both = [wire.start(place, *COMMAND, "--hosts", wire.text, cwd=tmp_path) for place in (0, 1)]
    for line in iter(both[1].stdout.readline, ""):  # type: ignore[union-attr]
        if line.startswith("single process"):
            break
    wire.pull_the_cable(0)
    for place, process in enumerate(both):
        code, _, err = finished(process)
        assert code == 1, err
        assert f"{wire.addresses[1 - place]} was lost" in sentence(err)
    assert not workers()


@pytest.mark.slow
def test_hosts_that_were_given_other_commands_do_not_begin(wire: Wire, tmp_path: Path) -> None:
    first = wire.start(0, *COMMAND, "--hosts", wire.text, cwd=tmp_path)
    second = wire.start(1, *COMMAND, "--target", "llama-70b", "--hosts", wire.text, cwd=tmp_path)
    for process in (first, second):
        code, _, err = finished(process)
        assert code == 1, err
        assert f"{wire.addresses[1]} was given another recipe, or other options" in sentence(err)


def alone(place: int, *more: str, cwd: Path) -> tuple[int, str, str]:
    """Run one of two hosts on the loopback, which needs no privileges, and without its peer."""
    names = ("127.0.0.1", "127.0.0.2")
    command = ("preflight", "--hosts", ",".join(names), "--this-host", names[place])
    process = subprocess.Popen(
        [sys.executable, "-m", "autoresearch", *command, "--device", "cpu", *more],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    return finished(process)


@pytest.mark.slow
def test_a_host_that_does_not_come_is_named(tmp_path: Path) -> None:
    code, _, err = alone(0, "--meet", "3", "--port", "29871", cwd=tmp_path)
    assert code == 1
    assert "127.0.0.2 did not connect within 3 s; start the same command there" in sentence(err)


@pytest.mark.slow
def test_a_first_host_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, _, err = alone(1, "--meet", "3", "--port", "29872", cwd=tmp_path)
    assert code == 1
    assert "the first host, 127.0.0.1, did not answer on 127.0.0.1 port 29872" in sentence(err)
