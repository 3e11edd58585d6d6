"""Wait for things that a test has started."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil


def wait_until(condition: Callable[[], object]) -> None:
    """Poll until ``condition`` holds.

    The suite's own timeout ends a wait in vain, so no test fails because a machine is busy.
    """
    while not condition():
        time.sleep(0.01)


def wait_beside(
    running: subprocess.Popen[str], said: Path, condition: Callable[[], object]
) -> None:
    """Poll until ``condition`` holds; fail if the process ends first, with what it ``said``."""
    wait_until(lambda: running.poll() is not None or condition())
    assert running.poll() is None, said.read_text()


def wait_for_all_gone(processes: Sequence[psutil.Process]) -> None:
    """Wait until every one of ``processes`` has ended."""
    psutil.wait_procs(processes)
