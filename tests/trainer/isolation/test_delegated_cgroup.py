"""Trials run in cgroups of their own if this process has a delegated one.

It has one under ``systemd-run --user --scope -p Delegate=yes``, or in a kernel booted for it
(tests/docker/test_delegated.py).
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import hostile, kernel_attacks
from tests.support.processes import noted
from tests.support.trials import trial_spec
from tests.support.waiting import wait_until
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.cgroup import Groups
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.usage import usage_below
from trainer.schema import TrialFailed

MIB = 1 << 20


@pytest.fixture(scope="module")
def groups() -> Groups:
    groups = Groups.take()
    if groups is None:
        pytest.skip("no cgroup is delegated to this process")
    return groups


@pytest.fixture
def executor(groups: Groups) -> Iterator[LocalExecutor]:
    """Yield an executor without the rest of the sandbox, which would refuse a memfd on a CPU."""
    layers = Layers(0, seccomp=False)
    with LocalExecutor(
        entry=kernel_attacks.ENTRY, layers=layers, allow_unsandboxed=True
    ) as executor:
        assert executor.lane.groups == groups
        yield executor
    assert list(groups.directory.glob("trial-*")) == [], "every trial's group is gone"


def test_memory_in_no_process_counts(executor: LocalExecutor, trial_dir: Path) -> None:
    hostile.arm(trial_dir, kernel_attacks.hold_memfd, mib=300)
    seen: list[int] = []
    job = executor.submit(trial_spec(memory_gib=None), trial_dir)
    while not job.wait(0.1) and max(seen, default=0) < 300 * MIB:
        held = _figures(executor, "memory.current")
        seen += held
        if held and held[0] > 280 * MIB:
            # the processes alone would have shown a tenth of it
            server = executor.lane.server
            usage = usage_below(server.pid)
            assert usage.weigh(None, on_gpu=False) < 200 * MIB
    job.cancel()
    assert max(seen) > 280 * MIB


@pytest.mark.parametrize("attack", [kernel_attacks.hold_memfd, hostile.hold_memory])
def test_no_limit_is_exceeded(executor: LocalExecutor, trial_dir: Path, attack: object) -> None:
    hostile.arm(trial_dir, attack, mib=600)  # type: ignore[arg-type]
    result = executor.run(trial_spec(memory_gib=0.2), trial_dir).result
    assert isinstance(result, TrialFailed)
    assert result.status == "oom", result
    assert result.peak_mem_gib is not None and result.peak_mem_gib < 0.35


def test_threads_stop_at_the_limit(executor: LocalExecutor, trial_dir: Path) -> None:
    hostile.arm(trial_dir, kernel_attacks.start_threads, many=2000)
    most = 0
    job = executor.submit(trial_spec(tasks=100), trial_dir)
    while not job.wait(0.001):
        most = max(most, *_figures(executor, "pids.current"), 0)
    result = job.result().result
    assert result.status in {"killed", "crash"}
    assert most <= 101


def test_what_fled_ends_without_its_fork_server(executor: LocalExecutor, trial_dir: Path) -> None:
    hostile.arm(trial_dir, hostile.hop)
    job = executor.submit(trial_spec(), trial_dir)
    while not (trial_dir / "pids").exists():
        time.sleep(0.005)
    hostile.arm(trial_dir, hostile.nap, s=0)  # for the second attempt
    os.kill(executor.lane.server.pid, signal.SIGKILL)
    job.wait()
    wait_until(lambda: not any(map(psutil.pid_exists, noted(trial_dir))))
    many = len(noted(trial_dir))
    time.sleep(0.2)
    assert len(noted(trial_dir)) == many, "it still hops"


def test_a_group_that_a_killed_campaign_left_is_removed(groups: Groups) -> None:
    left = groups.directory / "trial-999999999-t000009-x"
    left.mkdir()
    mine = groups.make("t000009", trial_spec().limits)
    groups.sweep()
    assert not left.exists()
    assert mine.directory.exists(), "its trial is about to enter it"
    mine.close()
    assert not mine.directory.exists()


def _figures(executor: LocalExecutor, name: str) -> list[int]:
    """Return the kernel's own figure of each trial's group."""
    assert executor.lane.groups is not None
    found = []
    for directory in executor.lane.groups.directory.glob("trial-*"):
        with contextlib.suppress(OSError):  # the group has ended
            found.append(int((directory / name).read_text()))
    return found
