"""Attack the kernel's side of the sandbox, in addition to :mod:`tests.support.hostile`.

Each attack returns what it got; an OSError becomes the loot. None can hurt the machine it runs on:
each bounds itself.
"""

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import platform
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autoresearch.errors import MachineryError
from tests.support.hostile import do, leave_result, run
from trainer.isolation.kernel.bpf import ARCHITECTURES

__all__ = ["ENTRY", "run"]

ENTRY = "tests.support.kernel_attacks:run"

_CLONE_NEWUSER, _CLONE_NEWNS = 0x10000000, 0x00020000
_KEEP_SIZE = 1
_EXIT = {"x86_64": 60, "aarch64": 93}
_IOPRIO_WHO_PROCESS, _IOPRIO_WHO_USER, _BEST_EFFORT_7, _IDLE = 1, 3, 2 << 13 | 7, 3 << 13


def call_kernel(name: str, *arguments: object) -> int:
    """Make a system call; its error becomes an OSError."""
    number = ARCHITECTURES[platform.machine()].number(name)
    returned = int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))
    if returned == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return returned


def call(trial_dir: Path, name: str) -> str:
    """Make one system call with arguments that do nothing."""
    call_kernel(name, 0, 0, 0, 0, 0, 0)
    return "called"


# --- other processes ------------------------------------------------------------------------------


def set_scheduler(trial_dir: Path, pid: int) -> str:
    os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
    return "done"


def set_scheduling_parameters(trial_dir: Path, pid: int) -> str:
    os.sched_setparam(pid, os.sched_param(0))
    return "done"


def set_scheduling_attributes(trial_dir: Path, pid: int) -> str:
    attributes = (ctypes.c_uint32 * 12)(48, 0, 0, 0, 19)  # its size, SCHED_OTHER, flags, nice
    call_kernel("sched_setattr", pid, attributes, 0)
    return "done"


def set_io_priority(trial_dir: Path, pid: int) -> str:
    call_kernel("ioprio_set", _IOPRIO_WHO_PROCESS, pid, _BEST_EFFORT_7)
    return "done"


def tell_processes(trial_dir: Path) -> list[int]:
    """Return the processes that can be seen."""
    return sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def on_a_process(pid: int) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Return attacks on a process's limits and scheduling, by name, with their arguments."""
    calls: dict[str, list[Any]] = {
        "resource.prlimit": [pid, resource.RLIMIT_CPU, [3600, 3600]],
        "os.setpriority": [os.PRIO_PROCESS, pid, 19],
        "os.sched_setaffinity": [pid, [min(os.sched_getaffinity(0))]],
    }
    others = set_scheduler, set_scheduling_parameters, set_scheduling_attributes, set_io_priority
    return {call: (do, {"call": call, "given": given}) for call, given in calls.items()} | {
        attack.__name__: (attack, {"pid": pid}) for attack in others
    }


def on_the_user() -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return an attack that sets the priority of all this user's processes, to the present one."""
    present = os.getpriority(os.PRIO_PROCESS, 0)
    return do, {"call": "os.setpriority", "given": [os.PRIO_USER, 0, present]}


def slow_the_user_down(trial_dir: Path) -> str:
    """Give all processes of this user the least share of processors and disks."""
    for call, which, priority in (
        ("setpriority", os.PRIO_USER, 19),
        ("ioprio_set", _IOPRIO_WHO_USER, _IDLE),
    ):
        with contextlib.suppress(PermissionError):  # those with capabilities; others follow
            call_kernel(call, which, 0, priority)
    return "done"


# --- namespaces, executables, names ---------------------------------------------------------------


def enter_namespaces(trial_dir: Path) -> str:
    """Return the capabilities of a child in its own user namespace."""
    told = trial_dir / "capabilities"
    child = call_kernel("clone", _CLONE_NEWUSER | _CLONE_NEWNS | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        told.write_text(Path("/proc/thread-self/status").read_text())
        os._exit(0)
    os.waitpid(child, 0)
    return next(line for line in told.read_text().splitlines() if line.startswith("CapEff"))


def load_own_program(trial_dir: Path, loader: str, path: str) -> str:
    """Run ``cat path`` with a copy of cat that the dynamic loader runs without executing it."""
    program = trial_dir / "program"
    program.write_bytes(Path("/bin/cat").read_bytes())
    done = subprocess.run([loader, program, path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(1 if "not permitted" in done.stderr else 13, done.stderr)
    return done.stdout


def watch_directory(trial_dir: Path, path: str) -> str:
    """Try to see the name of a file that another process makes in a closed directory."""
    descriptor = call_kernel("inotify_init1", os.O_NONBLOCK)
    call_kernel("inotify_add_watch", descriptor, os.fsencode(path), 0x100)  # IN_CREATE
    return "watching"


# --- sockets --------------------------------------------------------------------------------------


def send_datagram(trial_dir: Path, path: str, way: str) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        if way == "sendto":
            sender.sendto(b"secret", path)
        else:
            sender.sendmsg([b"secret"], [], 0, path)
    return "sent"


def bind_abstract(trial_dir: Path) -> str:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0autoresearch-test-{os.getpid()}")
        server.listen()
    return "bound"


def bind_path(trial_dir: Path) -> str:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(trial_dir / "socket"))
        server.listen()
    return "bound"


def talk_to_oneself(trial_dir: Path) -> str:
    """Use a socket pair, which CUDA and multiprocessing need and which stays allowed."""
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"x")
        return right.recv(1).decode()


# --- limits ---------------------------------------------------------------------------------------


def allocate_beyond_the_end(trial_dir: Path, size_bytes: int) -> int:
    """Return the bytes on disk of a file whose size is reported as 0."""
    with (trial_dir / "empty").open("wb") as file:
        call_kernel(
            "fallocate", file.fileno(), _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size_bytes)
        )
        return os.fstat(file.fileno()).st_blocks * 512


def allocate_within(trial_dir: Path, size_bytes: int) -> int:
    with (trial_dir / "full").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size_bytes)
        return os.fstat(file.fileno()).st_blocks * 512


def start_threads(trial_dir: Path, many: int) -> None:
    """Start at most ``many`` threads, each for at most ten seconds."""
    threading.stack_size(1 << 16)
    for _ in range(many):
        threading.Thread(target=time.sleep, args=(10,), daemon=True).start()
    time.sleep(10)


# --- memory that is hard to measure ---------------------------------------------------------------


def _touch(memory: mmap.mmap, size_bytes: int) -> None:
    for offset in range(0, size_bytes, mmap.PAGESIZE):
        memory[offset] = 1


def _private(size_bytes: int) -> mmap.mmap:
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def hold_without_main_thread(trial_dir: Path, mib: int, forks: int = 0) -> None:
    """End the main thread, so that /proc/PID/statm reads 0, while another holds ``mib`` MiB."""

    def hold() -> None:
        memory = _private(mib << 20)
        _touch(memory, mib << 20)
        time.sleep(30)
        os._exit(0)

    for _ in range(forks):
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
    threading.Thread(target=hold).start()
    ctypes.CDLL(None).syscall(_EXIT[platform.machine()], 0)


def hold_memfd(trial_dir: Path, mib: int) -> None:
    descriptor = call_kernel("memfd_create", b"hoard", 0)
    for _ in range(mib):
        os.write(descriptor, bytes(1 << 20))
    time.sleep(30)


def hold_in_sockets(trial_dir: Path, pairs: int) -> None:
    held = []
    for _ in range(pairs):
        try:
            ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError:
            break  # as many as it may open: they must be weighed, however late
        for end in ends:
            end.setblocking(False)
            try:
                while end.send(bytes(1 << 16)):
                    pass
            except BlockingIOError:
                held.append(end)
    time.sleep(30)


def hold_shared(trial_dir: Path, mib: int) -> str:
    """Hold pages that no process maps any more, although the mapping remains."""
    memory = mmap.mmap(-1, mib << 20)
    _touch(memory, mib << 20)
    memory.madvise(mmap.MADV_DONTNEED)
    time.sleep(2)
    return "held"


def hold_page_tables(trial_dir: Path, gib: int) -> None:
    """Hold page tables with one read in each 2 MiB: every page is the kernel's page of zeros."""
    memory = mmap.mmap(
        -1, gib << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ
    )
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for offset in range(0, gib << 30, 2 << 20):
        memory[offset]
    time.sleep(30)


def make_segment(trial_dir: Path, mib: int) -> str:
    segment = call_kernel("shmget", 0, mib << 20, 0o1600)  # IPC_PRIVATE, IPC_CREAT
    call_kernel("shmctl", segment, 0, 0)  # IPC_RMID
    return "made"


def lend_pages_to_pipe(trial_dir: Path) -> int:
    _reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_NONBLOCK)
    page = ctypes.create_string_buffer(4096)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(page), 4096)
    return call_kernel("vmsplice", writer, vector, 1, 0)


def grow_pipe(trial_dir: Path, size_bytes: int) -> int:
    _reader, writer = os.pipe()
    return fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, size_bytes)


def fill_pipes(trial_dir: Path, many: int) -> int:
    """Return the bytes that this many full pipes hold."""
    held_bytes = 0
    for _ in range(many):
        _reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                held_bytes += os.write(writer, bytes(1 << 16))
    return held_bytes


def pile_up_watches(trial_dir: Path, polls: int, files: int, numbers: int) -> dict[str, int]:
    """Return how many watches this many epoll instances hold, and for that one more than the
    highest number of an open file.

    A watch belongs to a file and a number, and lasts while the file is open under any number. So
    each file is watched under each of the numbers in turn.
    """
    instances = [select.epoll() for _ in range(polls)]
    watched = [os.eventfd(0) for _ in range(files)]
    used = [os.dup(watched[0]) for _ in range(numbers)]
    for file in watched:
        for number in used:
            os.dup2(file, number)
            for instance in instances:
                instance.register(number, select.EPOLLOUT)
    # Each of these files is always ready, so every watch reports itself.
    reported = [instance.poll(0, files * numbers + 1) for instance in instances]
    return {"watches": sum(map(len, reported)), "open_files": max(used) + 1}


def take_private_memory(trial_dir: Path, gib: float) -> str:
    """Reserve address space without touching it."""
    _private(int(gib * 2**30))
    return "mapped"


# --- the attack's own spec ------------------------------------------------------------------------


def rewrite_spec(trial_dir: Path, seed: int, result: str, exit_code: int) -> None:
    """Leave the result of another seed, and change the spec to match."""
    path = trial_dir / "spec.json"
    spec = json.loads(path.read_text())
    spec["seed"] = seed
    path.unlink()
    path.write_text(json.dumps(spec))
    leave_result(trial_dir, result)
    sys.exit(exit_code)


def leave_result_and_report(trial_dir: Path, result: str) -> None:
    """Leave a result as a file, and report that there is none."""
    (trial_dir / "result.json").write_text(result)
    raise MachineryError("no result")
