"""A command uses semaphores, worker processes and shared memory in a real trial."""

import os
import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.commands import command, command_spec, script
from tests.support.places import ROOT
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.kernel import shared_memory
from trainer.isolation.kernel.sandbox import Layers
from trainer.spec import CommandOk, TrialFailed

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
    yield lambda: os.stat("/dev/shm/NAME")
for way in tries():
    try:
        way()
    except OSError:
        continue
    got.append(way)
print("val loss", float(len(got)))
"""


def _is_to_be_had() -> bool:
    """Return whether the mount works, tried in a child process because the mount is permanent."""
    asked = os.fork()
    if asked == 0:
        os._exit(0 if shared_memory.mount_own(0.1) else 1)
    return os.waitpid(asked, 0)[1] == 0


ENTRY = COMMAND_ENTRY
pytestmark = [
    pytest.mark.skipif(Layers.detect().landlock_abi < 3, reason="no sandbox here"),
    pytest.mark.skipif(not _is_to_be_had(), reason="no mount namespace here"),
]


def ran(executor: LocalExecutor, place: Path, text: str, **limits: float) -> object:
    told = command(directory=str(script(place / "own", text)))
    trial = place / "campaign" / "trials" / "t000001"
    return executor.submit(command_spec(command=told, **limits), trial).result().result


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_workers_share_locks_and_files(executor: LocalExecutor, tmp_path: Path, start: str) -> None:
    result = ran(executor, tmp_path, SPAWNS.replace("START", repr(start)))
    assert isinstance(result, CommandOk), result
    assert result.score == 0.5
    assert not (shared_memory.SHARED_MEMORY / "left").exists()


def test_what_is_shared_counts_as_memory(executor: LocalExecutor, tmp_path: Path) -> None:
    result = ran(executor, tmp_path, FILLS, memory_gib=0.5)
    assert isinstance(result, TrialFailed), result
    assert result.status == "oom"


def test_the_machines_shared_memory_is_not_reached(executor: LocalExecutor, tmp_path: Path) -> None:
    name = f"autoresearch-{uuid.uuid4().hex}"
    outside = shared_memory.SHARED_MEMORY / name
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
DECLARED = """
import sys
from pathlib import Path
from tests.support.commands import command, command_spec
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
place = Path(sys.argv[1])
ways = ("shares", False), ("shares", True), ("keeps", True), ("deletes", True)
with LocalExecutor(entry=COMMAND_ENTRY) as executor:
    for number, (script, declared) in enumerate(ways, start=1):
        told = command(directory=str(place / script), shared_memory=declared)
        trial = place / "campaign" / "trials" / f"t{number:06}"
        limits = {} if script == "shares" else {"memory_gib": 0.3}
        spec = command_spec(command=told, trial_id=trial.name, **limits)
        print(executor.submit(spec, trial).result().result.status)
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv"
)
def test_where_no_mount_can_be_had_a_menu_may_declare_the_machines(tmp_path: Path) -> None:
    name = f"autoresearch-{uuid.uuid4().hex}"
    bystander = shared_memory.SHARED_MEMORY / f"{name}-open"
    script(tmp_path / "shares", SHARES.replace("NAME", name))
    for way in ("keeps", "deletes"):
        text = HOLDS.replace("NAME", name).replace("DELETED", str(way == "deletes"))
        script(tmp_path / way, text)
    without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    with bystander.open("w"):
        try:
            done = subprocess.run(
                [*without, sys.executable, "-c", DECLARED, str(tmp_path)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            )
            assert done.stdout.split() == ["crash", "scored", "oom", "oom"]
            assert bystander.exists()
        finally:
            bystander.unlink()
    assert not (shared_memory.SHARED_MEMORY / name).exists()


def test_sweeping_keeps_what_was_there_or_is_in_use(tmp_path: Path) -> None:
    folder = shared_memory.SHARED_MEMORY
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
    folder = shared_memory.SHARED_MEMORY
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
