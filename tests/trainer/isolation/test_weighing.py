"""Memory and threads count even if they do not show in a trial's resident memory."""

import errno
import mmap
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import hostile, kernel_attacks
from tests.support.present import known
from tests.support.processes import of_trials
from tests.support.trials import trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.usage import ProcessUsage, TreeUsage, unmapped_bytes, usage_below
from trainer.schema import TrialFailed

ENTRY = kernel_attacks.ENTRY

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")

MIB = 1 << 20
BACKENDS = {"cpu": "torch", "cuda": "megatron"}
"""Backend for each device: only megatron leaves the import of torch, and its start on a GPU, to the
trial."""


def end(
    executor: LocalExecutor,
    trial_dir: Path,
    attack: Callable[..., Any],
    arguments: dict[str, object],
    **spec: Any,
) -> TrialFailed:
    result = executor.run(
        trial_spec(**{"memory_gib": 0.2, **spec}), hostile.arm(trial_dir, attack, **arguments)
    ).result
    assert isinstance(result, TrialFailed)
    return result


@pytest.mark.parametrize(
    ("attack", "arguments", "device"),
    [
        (kernel_attacks.hold_without_main_thread, {"mib": 300}, "cpu"),
        # several processes are weighed by their shares of common pages
        (kernel_attacks.hold_without_main_thread, {"mib": 300, "forks": 2}, "cpu"),
        (kernel_attacks.hold_page_tables, {"gib": 120}, "cpu"),
        (kernel_attacks.hold_memfd, {"mib": 300}, "cuda"),
        (kernel_attacks.hold_in_sockets, {"pairs": 600}, "cuda"),
    ],
)
def test_what_is_out_of_sight_counts(
    attack: Callable[..., Any],
    arguments: dict[str, object],
    device: str,
    request: pytest.FixtureRequest,
    trial_dir: Path,
) -> None:
    executor = request.getfixturevalue("executor" if device == "cpu" else "confined_with_gpu")
    result = end(executor, trial_dir, attack, arguments, device=device, backend=BACKENDS[device])
    assert result.status == "oom", result
    assert result.message.endswith("over the limit of 0.2 GiB")


def test_threads_are_counted(executor: LocalExecutor, trial_dir: Path) -> None:
    result = end(executor, trial_dir, kernel_attacks.start_threads, {"many": 300}, tasks=100)
    assert result.status == "killed"
    assert result.message.endswith("threads, over the limit of 100")
    assert of_trials(executor) == []


@pytest.mark.skipif(not Layers.detect().confine, reason="limits come with the sandbox")
def test_private_memory_has_a_wall(executor: LocalExecutor, trial_dir: Path) -> None:
    end(executor, trial_dir, kernel_attacks.take_private_memory, {"gib": 1})
    assert hostile.loot(trial_dir) == "mapped"
    beyond, much = trial_dir.with_name("t000002"), {"gib": 4 + (os.cpu_count() or 1) / 64}
    end(executor, beyond, kernel_attacks.take_private_memory, much)
    assert hostile.loot(beyond)["errno"] == errno.ENOMEM
    without = trial_dir.with_name("t000003")
    end(executor, without, kernel_attacks.take_private_memory, much, memory_gib=None)
    assert hostile.loot(without) == "mapped"


def test_a_process_is_weighed_as_others_weigh_it() -> None:
    usage = known(ProcessUsage.of(os.getpid()))
    process = psutil.Process()
    assert usage.thread == usage.pid == os.getpid()
    assert usage.threads == process.num_threads()
    assert usage.held_bytes == pytest.approx(process.memory_info().rss, rel=0.1)
    assert 0 < usage.page_table_bytes < usage.held_bytes


def test_what_has_gone_weighs_nothing() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert known(ProcessUsage.of(child)).held_bytes == 0
    os.waitpid(child, 0)
    assert ProcessUsage.of(child) is None
    assert usage_below(child).processes == ()
    assert unmapped_bytes((child,)) == 0


def test_what_goes_during_a_look_takes_no_sharing_from_the_others() -> None:
    """A worker that ends between two queries does not mean that the kernel cannot report
    sharing."""
    hoard = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    hoard.write(b"x" * len(hoard))
    children = [forked() for _ in range(3)]
    try:
        seen = [ProcessUsage.of(pid) for pid in (os.getpid(), *children)]
        usage = TreeUsage(tuple(one for one in seen if one is not None))
        kill(children.pop())
        limit = 2 * usage.processes[0].held_bytes
        assert sum(one.held_bytes for one in usage.processes) > limit
        assert usage.weigh(limit, count_unmapped=False) < limit
    finally:
        for child in children:
            kill(child)


def forked() -> int:
    """Fork a child that shares all memory of this process, and waits."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    return child


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memfd_create")
def test_a_memfd_counts_once_however_often_it_is_open() -> None:
    before = unmapped_bytes((os.getpid(),))
    with os.fdopen(os.memfd_create("hoard"), "wb") as hoard:
        again = os.dup(hoard.fileno())
        hoard.write(bytes(4 * MIB))
        hoard.flush()
        assert unmapped_bytes((os.getpid(), os.getpid())) - before == 4 * MIB
        os.close(again)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memfd_create")
def test_what_is_mapped_of_a_memfd_counts_once_and_hides_no_other() -> None:
    def weight_bytes() -> int:
        usage = known(ProcessUsage.of(os.getpid()))
        return TreeUsage((usage,)).weigh(1.0, count_unmapped=True)

    size, before = 64 * MIB, weight_bytes()
    with os.fdopen(os.memfd_create("mapped"), "r+b") as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as mapped:
            mapped.write(bytes(size))
            assert weight_bytes() - before == pytest.approx(size, rel=0.2)
            with os.fdopen(os.memfd_create("hoard"), "wb") as hoard:
                hoard.write(bytes(size))
                hoard.flush()
                assert weight_bytes() - before == pytest.approx(2 * size, rel=0.2)
    with mmap.mmap(-1, size) as shared, os.fdopen(os.memfd_create("hoard"), "wb") as hoard:
        shared.write(bytes(size))
        hoard.write(bytes(size))
        hoard.flush()
        assert weight_bytes() - before == pytest.approx(2 * size, rel=0.2)


def test_shared_pages_count_also_when_they_are_not_resident() -> None:
    def weight_bytes() -> int:
        usage = known(ProcessUsage.of(os.getpid()))
        return TreeUsage((usage,)).weigh(1.0, count_unmapped=True)

    size, before = 64 * MIB, weight_bytes()
    with mmap.mmap(-1, size) as shared:
        shared.write(bytes(size))
        assert weight_bytes() - before == pytest.approx(size, rel=0.2)
        shared.madvise(mmap.MADV_DONTNEED)
        assert weight_bytes() - before == pytest.approx(size, rel=0.2)


def test_a_socket_counts_as_what_it_may_hold() -> None:
    before = unmapped_bytes((os.getpid(),))
    left, right = socket.socketpair()
    with left, right:
        most = 2 * int(Path("/proc/sys/net/core/wmem_max").read_text())
        assert unmapped_bytes((os.getpid(),)) - before == 2 * most
