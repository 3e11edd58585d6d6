"""A command uses semaphores, worker processes and shared memory in a real trial."""

import socket
import uuid
from pathlib import Path

import pytest

from tests.support.commands import command, command_spec, script
from tests.support.waiting import wait_until
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.kernel import shared_memory
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.kernel.world import SHARED_MEMORY
from trainer.schema import CommandOk, Measured, TrialFailed

SPAWNS = """
import multiprocessing as mp
from multiprocessing.reduction import DupFd
import os
def worker(queue, done):
    fd = os.open("/dev/shm/shared", os.O_RDWR | os.O_CREAT)
    os.unlink("/dev/shm/shared")
    os.write(fd, b"0.5")
    queue.put(DupFd(fd))
    done.wait()
if __name__ == "__main__":
    assert os.listdir("/dev/shm") == [], os.listdir("/dev/shm")
    mp.set_start_method(START)
    queue, done = mp.Queue(), mp.Event()
    process = mp.Process(target=worker, args=(queue, done))
    process.start()
    fd = queue.get().detach()
    done.set()
    process.join()
    open("/dev/shm/left", "w").close()
    print("val loss", os.pread(fd, 9, 0).decode())
"""
FILLS = """
import time
try:
    with open("/dev/shm/much", "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))
except OSError:
    time.sleep(500)
"""
CONNECTS = """
import os, socket
got = []
def tries():
    yield lambda: socket.socket(socket.AF_UNIX).connect(PATH)
    yield lambda: socket.socketpair()[0].connect(PATH)
    yield lambda: os.open(PATH, os.O_RDWR)
    yield lambda: os.open("/dev/shm/NAME", os.O_RDONLY)
    yield lambda: os.unlink("/dev/shm/NAME")
for way in tries():
    try:
        way()
    except OSError:
        continue
    got.append(way)
print("val loss", float(len(got)))
"""


ENTRY = COMMAND_ENTRY
HERE = Layers.detect()
pytestmark = pytest.mark.skipif(HERE.landlock_abi < 3, reason="no sandbox here")
needs_world = pytest.mark.skipif(not HERE.world, reason="this machine allows no namespaces")


def ran(
    executor: LocalExecutor, place: Path, text: str, *, declared: bool = False, **limits: float
) -> Measured | TrialFailed:
    told = command(directory=str(script(place / "own", text)), shared_memory=declared)
    trial = place / "campaign" / "trials" / "t000001"
    return executor.run(command_spec(command=told, **limits), trial).result


@needs_world
@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_workers_share_locks_and_files(executor: LocalExecutor, tmp_path: Path, start: str) -> None:
    result = ran(executor, tmp_path, SPAWNS.replace("START", repr(start)))
    assert isinstance(result, CommandOk), result
    assert result.score == 0.5
    assert not (SHARED_MEMORY / "left").exists()


@needs_world
def test_what_is_shared_counts_as_memory(executor: LocalExecutor, tmp_path: Path) -> None:
    result = ran(executor, tmp_path, FILLS, memory_gib=0.5)
    assert isinstance(result, TrialFailed), result
    assert result.status == "oom"


@pytest.mark.parametrize("fixture", ["executor", "without_namespaces"])
def test_the_machines_shared_memory_is_not_reached(
    request: pytest.FixtureRequest, tmp_path: Path, fixture: str
) -> None:
    executor = request.getfixturevalue(fixture)
    name = f"autoresearch-{uuid.uuid4().hex}"
    outside = SHARED_MEMORY / name
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        outside.touch()
        try:
            text = CONNECTS.replace("PATH", repr(path)).replace("NAME", name)
            result = ran(executor, tmp_path, text)
        finally:
            outside.unlink()
    assert isinstance(result, CommandOk), result
    assert result.score == 0.0


SHARES = """
import multiprocessing as mp
def worker(queue):
    queue.put(0.5)
if __name__ == "__main__":
    queue = mp.get_context("spawn").Queue()
    process = mp.get_context("spawn").Process(target=worker, args=(queue,))
    process.start()
    found = queue.get()
    process.join()
    open("/dev/shm/NAME", "w").write("left")
    print("val loss", found)
"""
HOLDS = """
import os, time
fd = os.open("/dev/shm/NAME", os.O_RDWR | os.O_CREAT)
if DELETED:
    os.unlink("/dev/shm/NAME")
for _ in range(310):
    os.write(fd, bytes(1 << 20))
if not DELETED:
    os.close(fd)
time.sleep(30)
print("val loss 0.5")
"""


@pytest.mark.parametrize(
    ("text", "declared", "status"),
    [(SHARES, False, "crash"), (SHARES, True, "scored"), (HOLDS, True, "oom")],
)
@pytest.mark.parametrize("deleted", [True, False])
def test_where_no_namespaces_can_be_had_a_menu_may_declare_the_machines(
    without_namespaces: LocalExecutor,
    tmp_path: Path,
    text: str,
    declared: bool,
    status: str,
    deleted: bool,
) -> None:
    name = f"autoresearch-{uuid.uuid4().hex}"
    bystander = SHARED_MEMORY / f"{name}-open"
    limits = {"memory_gib": 0.3} if text is HOLDS else {}
    text = text.replace("NAME", name).replace("DELETED", str(deleted))
    with bystander.open("w"):
        try:
            result = ran(without_namespaces, tmp_path, text, declared=declared, **limits)
            assert result.status == status, result
            assert bystander.exists()
        finally:
            bystander.unlink()
    assert not (SHARED_MEMORY / name).exists()


@needs_world
@pytest.mark.parametrize("deleted", [True, False])
def test_what_a_world_holds_counts_although_a_menu_declares_the_machines(
    executor: LocalExecutor, tmp_path: Path, deleted: bool
) -> None:
    """The trial has its own instead, and nothing is swept that cannot be its own."""
    name = f"autoresearch-{uuid.uuid4().hex}"
    text = HOLDS.replace("NAME", name).replace("DELETED", str(deleted))
    # The world's own holds no more than the limit, so another part is in the process.
    text = text.replace("range(310)", "range(295)")
    result = ran(
        executor, tmp_path, f"held = b'x' * (40 << 20)\n{text}", declared=True, memory_gib=0.3
    )
    assert result.status == "oom", result
    assert not (SHARED_MEMORY / name).exists()


@needs_world
def test_nothing_of_the_machines_is_swept_after_a_world(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    """A file that another program made and closed during the trial stays."""
    other = SHARED_MEMORY / f"autoresearch-{uuid.uuid4().hex}"
    told = command(
        directory=str(
            script(tmp_path / "own", "import time; time.sleep(0.5); print('val loss 1')")
        ),
        shared_memory=True,
    )
    trial = tmp_path / "campaign" / "trials" / "t000001"
    job = executor.submit(command_spec(command=told), trial)
    wait_until((trial / "trainer.log").exists)
    other.touch()
    try:
        assert isinstance(job.result().result, CommandOk)
        assert other.exists()
    finally:
        other.unlink(missing_ok=True)


def test_sweeping_keeps_what_was_there_or_is_in_use(tmp_path: Path) -> None:
    folder = SHARED_MEMORY
    old, new, used = (folder / f"autoresearch-{uuid.uuid4().hex}" for _ in range(3))
    old.write_bytes(b"x")
    before = shared_memory.own_files()
    new.write_bytes(bytes(5000))
    try:
        with used.open("wb"):
            assert shared_memory.sweep(before) >= 5000
            assert (old.exists(), new.exists(), used.exists()) == (True, False, True)
    finally:
        for path in (old, new, used):
            path.unlink(missing_ok=True)


def test_growth_counts_unless_others_use_the_file_and_it_would_decide() -> None:
    folder = SHARED_MEMORY
    grows, closed, used = (folder / f"autoresearch-{uuid.uuid4().hex}" for _ in range(3))
    grows.write_bytes(bytes(4096))
    before, no_server = shared_memory.own_files(), 2**22 + 1
    try:
        grows.write_bytes(bytes(3 * 4096))
        closed.write_bytes(bytes(4096))
        with used.open("wb", buffering=0) as file:
            file.write(bytes(16 * 4096))
            assert shared_memory.added_bytes(no_server, before, 1 << 20) == 19 * 4096
            assert shared_memory.added_bytes(no_server, before, 4096) == 3 * 4096
    finally:
        for path in (grows, closed, used):
            path.unlink(missing_ok=True)
