"""Check that a campaign survives the end of its screen, its terminal or its Slurm allocation."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable

import psutil
import pytest

from tests.support.campaigns import COMMAND, Toy
from tests.support.waiting import wait_for_all_gone, wait_until

pytestmark = pytest.mark.slow

LONG = "100000 steps"


SCREENS = {"full": ">/dev/full", "unread": "", "closed": ">&-"}
"""Redirections of a standard output that is a pipe without a reader."""


def on_screen(toy: Toy, screen: str, *words: str) -> subprocess.CompletedProcess[str]:
    reader, writer = os.pipe()
    os.close(reader)
    shell = ("/bin/sh", "-c", f'exec "$@" {SCREENS[screen]}', "sh", str(COMMAND), *words)
    done = subprocess.run(
        shell,
        cwd=toy.home,
        env=toy.environment,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    return done


def test_a_campaign_outlives_its_screen_and_a_list_says_that_it_was_not_written(toy: Toy) -> None:
    """The menu and the campaign have names that a terminal cannot encode or takes for markup."""
    toy.menu = toy.menu.rename(toy.home / "toy \N{GRINNING FACE}.toml")
    toy.campaign = toy.home / "runs" / "x [bold] y[/b]"
    for iteration, screen in enumerate(SCREENS, 1):
        done = on_screen(toy, screen, *toy.arguments(iteration)[1:])
        assert done.returncode == 0, done.stderr
        assert len(toy.iterations()) == iteration
        lost = [row for row in toy.rows() if row["kind"] == "event" and row["event"] == "note"]
        assert len(lost) == iteration, "once a session"
    for words in (("--json",), ()):
        top = ("top", f"--campaign={toy.campaign}", *words)
        done = on_screen(toy, "full", *top)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        done = on_screen(toy, "unread", *top)
        assert (done.returncode, done.stderr) == (0, "")
        assert toy.run(*top).returncode == 0

    # Under nohup the loop survives its terminal, here one that can show ASCII alone.
    toy.environment["PYTHONIOENCODING"] = "ascii"
    begun = "trials/t*"
    trials = len(list(toy.campaign.glob(begun)))
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited, as from nohup
    running = toy.start(4)
    signal.signal(signal.SIGHUP, previous)
    wait_until(lambda: running.poll() is not None or len(list(toy.campaign.glob(begun))) > trials)
    running.send_signal(signal.SIGHUP)
    output, _ = running.communicate()
    assert running.returncode == 0, output
    assert len(toy.iterations()) == 4


def stopped(
    toy: Toy,
    trials: int,
    signals: Iterable[signal.Signals],
    *more: str,
    ready: Callable[[], object] = bool,
) -> None:
    """Start the loop; once this many trials train, send it the signals, and check its end."""
    curves = "trials/t*/curve.jsonl"
    before = len(list(toy.campaign.glob(curves)))
    running = toy.start(5, *more)
    wait_until(lambda: len(list(toy.campaign.glob(curves))) == before + trials)
    ready()
    servers = psutil.Process(running.pid).children(recursive=True)
    for number in signals:
        running.send_signal(number)
    output, _ = running.communicate()
    assert running.returncode == 130, output
    wait_for_all_gone(servers)
    assert not toy.rows("baseline")


def test_two_signals_of_any_kind_stop_everything_at_once(toy: Toy) -> None:
    """Two equal signals could arrive as one. The last loop's tracker never answers."""
    toy.menu.write_text(toy.menu.read_text().replace("6 steps", LONG))
    stopped(toy, 1, (signal.SIGHUP, signal.SIGUSR1))
    stopped(toy, 1, (signal.SIGUSR2, signal.SIGTERM))
    lanes = min(2, len(os.sched_getaffinity(0)))
    stopped(toy, lanes, (signal.SIGTERM, signal.SIGINT), f"--lanes={lanes}")

    words = ("envelope", f"--menu={toy.menu}", f"--out={toy.home / 'out'}", "--steps=1000000")
    running = subprocess.Popen([str(COMMAND), *words], cwd=toy.home, env=toy.environment)
    measured = toy.home / "out"
    wait_until(lambda: running.poll() is not None or any(measured.glob("trials/*/curve.jsonl")))
    assert running.poll() is None
    running.send_signal(signal.SIGUSR1)
    assert running.wait() == 130

    pytest.importorskip("mlflow")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tracker = f"--log=mlflow:http://127.0.0.1:{silent.getsockname()[1]}"
        held: list[socket.socket] = []
        stopped(
            toy,
            1,
            (signal.SIGINT, signal.SIGTERM),
            "--lanes=1",
            tracker,
            ready=lambda: held.append(silent.accept()[0]),  # its client has asked
        )
        for connection in held:
            connection.close()
