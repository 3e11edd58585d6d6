"""Check that a campaign survives the end of its screen, its terminal or its Slurm allocation."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.campaigns import COMMAND, Toy

pytestmark = pytest.mark.slow

LONG = "100000 steps"


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


def to_full(toy: Toy, *words: str) -> subprocess.CompletedProcess[str]:
    with Path("/dev/full").open("w") as full:
        return on_screen(toy, *words, stdout=full)


def to_nobody(toy: Toy, *words: str) -> subprocess.CompletedProcess[str]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return on_screen(toy, *words, stdout=writer)
    finally:
        os.close(writer)


def to_closed(toy: Toy, *words: str) -> subprocess.CompletedProcess[str]:
    shell = ("/bin/sh", "-c", 'exec "$@" >&-', "sh", str(COMMAND), *words)
    return subprocess.run(
        shell, cwd=toy.home, env=toy.environment, stderr=subprocess.PIPE, text=True, check=False
    )


def on_screen(toy: Toy, *words: str, stdout: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), *words],
        cwd=toy.home,
        env=toy.environment,
        stdout=stdout,  # type: ignore[call-overload]
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_a_campaign_outlives_its_screen_and_a_list_says_that_it_was_not_written(toy: Toy) -> None:
    screens: list[Callable[..., subprocess.CompletedProcess[str]]] = [to_full, to_nobody, to_closed]
    for iteration, screen in enumerate(screens, 1):
        done = screen(toy, *toy.arguments(iteration)[1:])
        assert done.returncode == 0, done.stderr
        assert len(toy.iterations()) == iteration
        lost = [row for row in toy.rows() if row["kind"] == "event" and row["event"] == "note"]
        assert len(lost) == iteration, "once a session"
    for words in (("--json",), ()):
        top = ("top", f"--campaign={toy.campaign}", *words)
        done = to_full(toy, *top)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        done = to_nobody(toy, *top)
        assert (done.returncode, done.stderr) == (0, "")


def start_long(toy: Toy, trial: str) -> subprocess.Popen[str]:
    """Start the loop, and return once the trial's training writes its curve."""
    toy.menu.write_text(toy.menu.read_text().replace("6 steps", LONG))
    running = toy.start(5)
    wait_for_file(toy.campaign / "trials" / trial / "curve.jsonl", running)
    return running


def wait_for_file(path: Path, running: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert running.poll() is None, running.communicate()[0]
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGHUP, signal.SIGUSR1), (signal.SIGUSR2, signal.SIGTERM)],
)
def test_what_announces_the_end_stops_the_loop_like_sigterm(
    toy: Toy, first: signal.Signals, second: signal.Signals
) -> None:
    running = start_long(toy, "t000001")
    running.send_signal(first)
    running.send_signal(second)
    output, _ = running.communicate()
    assert running.returncode == 130, output
    assert [row["kind"] for row in toy.rows() if row["kind"] == "baseline"] == []
    resumed = start_long(toy, "t000002")
    resumed.send_signal(signal.SIGTERM)
    resumed.send_signal(first)
    output, _ = resumed.communicate()
    assert resumed.returncode == 130, output


def test_a_loop_under_nohup_survives_its_terminal(toy: Toy) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited, as from nohup
    running = toy.start(1)
    signal.signal(signal.SIGHUP, previous)
    wait_for_file(toy.campaign / "trials" / "t000001", running)
    running.send_signal(signal.SIGHUP)
    output, _ = running.communicate()
    assert running.returncode == 0, output
    assert len(toy.iterations()) == 1


def test_an_envelope_stops_like_the_loop(toy: Toy) -> None:
    words = ("envelope", f"--menu={toy.menu}", f"--out={toy.home / 'out'}", "--steps=1000000")
    running = subprocess.Popen([str(COMMAND), *words], cwd=toy.home, env=toy.environment)
    while not list((toy.home / "out").glob("trials/*/curve.jsonl")):
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(signal.SIGUSR1)
    assert running.wait() == 130


def test_a_comment_in_the_menu_changes_nothing_and_a_value_refuses(toy: Toy) -> None:
    toy.begun(0)
    written = toy.menu.read_text()
    toy.menu.write_text(written.replace("high = 1e-1", "high  =  0.1  # the same"))
    resumed = toy.loop(1)
    assert resumed.returncode == 0, resumed.stderr
    assert len(toy.iterations()) == 1
    toy.menu.write_text(written.replace("high = 1e-1", "high = 2e-1"))
    assert toy.loop(2).returncode == 1
