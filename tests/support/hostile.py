"""Provide trials that misbehave, for the supervisor to survive and the sandbox to contain.

A test writes the name of an attack and its arguments into the trial's directory (:func:`arm`). The
trial's process runs it (:func:`run`, the executor's entry) and leaves what it got (:func:`loot`).
An attack returns its loot, or raises what stopped it. None can hurt the machine it runs on: each
bounds itself.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from autoresearch.errors import CorpusError, MachineryError, SpecError
from trainer.isolation.messages import Driver, Said
from trainer.schema import Measured, TrialFailed, TrialSpec

ENTRY = "tests.support.hostile:run"

_ATTACK, _LOOT = "attack.json", "loot.json"


def arm(trial_dir: Path, attack: Callable[..., Any], **arguments: object) -> Path:
    """Make the trial of this directory run ``attack(trial_dir, **arguments)``."""
    trial_dir.mkdir(parents=True, exist_ok=True)
    order = {"module": attack.__module__, "attack": attack.__name__, "arguments": arguments}
    (trial_dir / _ATTACK).write_text(json.dumps(order))
    return trial_dir


def loot(trial_dir: Path) -> Any:
    """Return what the attack returned, or what stopped it: ``{"stopped", "errno", "why"}``."""
    return json.loads((trial_dir / _LOOT).read_text())


def refused(loot: Any) -> bool:
    """Return whether the attack was denied."""
    return isinstance(loot, dict) and loot.get("errno") in {errno.EACCES, errno.EPERM}


def run(
    spec: TrialSpec, trial_dir: Path, *, born: float, **how: Any
) -> Measured | TrialFailed | None:
    """Run the trial. The attack reports its result.

    A spec that names a command runs it: the script then makes the attack.
    """
    if spec.command is not None:
        from trainer.command.child import run_command

        return run_command(spec, trial_dir, born=born, **how)
    strike(trial_dir)
    return None


def strike(trial_dir: Path) -> None:
    """Make the attack that the trial is armed with, and leave the loot."""
    order = json.loads((trial_dir / _ATTACK).read_text())
    (trial_dir / _LOOT).write_text(json.dumps(_made(trial_dir, **order)))


def _made(trial_dir: Path, module: str, attack: str, arguments: dict[str, Any]) -> Any:
    try:
        return getattr(sys.modules[module], attack)(trial_dir, **arguments)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        return {"stopped": type(error).__name__, "errno": error.errno, "why": str(error)}


def several(trial_dir: Path, orders: list[dict[str, Any]]) -> list[Any]:
    """Make attacks one after the other; return the loot of each."""
    return [_made(trial_dir, **order) for order in orders]


def in_turn(*attacks: tuple[Callable[..., Any], dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments with which :func:`several` makes these attacks."""
    orders = [
        {"module": attack.__module__, "attack": attack.__name__, "arguments": arguments}
        for attack, arguments in attacks
    ]
    return {"orders": orders}


def do(trial_dir: Path, call: str, given: list[Any]) -> Any:
    """Call a function of Python's, ``module.name``; return what it returns, or "done"."""
    found = resolve_name(call)(*given)
    return "done" if found is None else json.loads(json.dumps(found, default=str))


# --- secrets and files ---------------------------------------------------------------------------


def tell_variables(trial_dir: Path) -> dict[str, Any]:
    return {"now": dict(os.environ), "cwd": str(Path.cwd())}


def read(trial_dir: Path, path: str) -> str:
    return Path(path).read_bytes().decode(errors="replace")


def write(trial_dir: Path, path: str) -> str:
    Path(path).write_text("overwritten")
    return "written"


def write_through_symlink(trial_dir: Path, path: str) -> str:
    link = trial_dir / "soft"
    link.symlink_to(path)
    link.write_text("overwritten")
    return "written"


def write_through_hardlink(trial_dir: Path, path: str) -> str:
    (trial_dir / "hard").hardlink_to(path)
    (trial_dir / "hard").write_text("overwritten")
    return "written"


def move_out(trial_dir: Path, path: str) -> str:
    (trial_dir / "mine").write_text("overwritten")
    (trial_dir / "mine").replace(path)
    return "moved"


def move_in(trial_dir: Path, path: str) -> str:
    Path(path).replace(trial_dir / "mine")
    return "moved"


def set_attribute(trial_dir: Path, path: str) -> str:
    os.setxattr(path, "user.mine", b"1")
    return "changed"


def execute_own_file(trial_dir: Path) -> str:
    """Run a copy of a real program; mode bits cannot be changed, but open can set them."""
    program = trial_dir / "program"
    fd = os.open(program, os.O_WRONLY | os.O_CREAT, 0o755)
    os.write(fd, Path("/bin/true").read_bytes())
    os.close(fd)
    return str(subprocess.run([program], check=True).returncode)


def use_own_directory(trial_dir: Path) -> str:
    """Do everything that an honest trial does in its directory."""
    (trial_dir / "a" / "b").mkdir(parents=True)
    (trial_dir / "a" / "file").write_text("text")
    (trial_dir / "a" / "file").replace(trial_dir / "a" / "b" / "file")
    os.truncate(trial_dir / "a" / "b" / "file", 2)
    content = (trial_dir / "a" / "b" / "file").read_text()
    (trial_dir / "a" / "b" / "file").unlink()
    (trial_dir / "a" / "b").rmdir()
    Path(os.environ["TMPDIR"], "scratch").write_text("x")
    Path("~/cache").expanduser().mkdir()
    Path(os.devnull).write_text("x")
    subprocess.run([sys.executable, "-c", "import math"], check=True)
    return content


# --- network -------------------------------------------------------------------------------------


def connect_tcp(trial_dir: Path, port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return "connected"


def bind_tcp(trial_dir: Path) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
    return "bound"


def send_udp(trial_dir: Path, port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"secret", ("127.0.0.1", port))
    return "sent"


def connect_unix(trial_dir: Path, address: str) -> str:
    """Connect to an abstract address if it starts with ``@``, or else to a path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(address.replace("@", "\0") if address.startswith("@") else address)
    return "connected"


# --- other processes, the kernel -----------------------------------------------------------------


def call_x32(trial_dir: Path) -> str:
    """Call getpid by its x32 number, which a filter for x86_64 would not recognize."""
    ctypes.CDLL(None, use_errno=True).syscall(0x40000000 | 39)
    return "called"


def ask_for_capabilities(trial_dir: Path) -> dict[str, str]:
    """Ask for the capabilities by system calls, for a process that may not read them in /proc."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, data) == 0
    effective, permitted, inheritable = (data[k] | data[k + 3] << 32 for k in range(3))
    ambient = sum(libc.prctl(47, 1, number, 0, 0) << number for number in range(40))
    return {
        "NoNewPrivs": str(libc.prctl(39, 0, 0, 0, 0)),
        "Seccomp": str(libc.prctl(21, 0, 0, 0, 0)),
        "CapEff": f"{effective:016x}",
        "CapPrm": f"{permitted:016x}",
        "CapInh": f"{inheritable:016x}",
        "CapAmb": f"{ambient:016x}",
    }


# --- limits --------------------------------------------------------------------------------------


def write_huge_file(trial_dir: Path, size_bytes: int) -> int:
    with (trial_dir / "huge").open("wb") as file:
        for _ in range(size_bytes >> 20):
            file.write(bytes(1 << 20))
            file.flush()
    return (trial_dir / "huge").stat().st_size


def open_many_files(trial_dir: Path, many: int) -> int:
    with contextlib.ExitStack() as stack:
        for _ in range(many):
            stack.enter_context(Path(os.devnull).open())
    return many


def raise_open_files_limit(trial_dir: Path) -> str:
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 15, 1 << 15))
    except ValueError as error:  # Python's form of EPERM here
        raise PermissionError(1, str(error)) from error
    return "raised"


def hold_memory(trial_dir: Path, mib: int, forks: int = 0) -> None:
    """Touch ``mib`` MiB, then fork so that all children share them, and wait."""
    hoard = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, mib << 20, mmap.PAGESIZE):
        hoard[offset] = 1
    for _ in range(forks):
        if os.fork() == 0:
            time.sleep(3600)
    time.sleep(1 if forks else 3600)


def fork_many(trial_dir: Path, many: int) -> None:
    """Fork at most ``many`` processes, each for at most ten seconds: a bounded fork bomb."""
    for _ in range(many):
        if os.fork() == 0:
            os.setsid()
            time.sleep(10)
            os._exit(0)
        time.sleep(0.001)
    time.sleep(10)


# --- lifetime ------------------------------------------------------------------------------------


def spread(trial_dir: Path, *, stay: bool, deaf: bool = False) -> None:
    """Leave a child, a grandchild in another session and an orphan; write their ids to ``pids``."""
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _fork_and(trial_dir, lambda: None)
    _fork_and(trial_dir, os.setsid)
    middle = os.fork()
    if middle == 0:  # exits at once, so that its child is an orphan
        os.setsid()
        _fork_and(trial_dir, os.setsid)
        os._exit(0)
    os.waitpid(middle, 0)
    _note(trial_dir)
    while len((trial_dir / "pids").read_text().split()) < 4:
        time.sleep(0.01)
    if stay:
        time.sleep(3600)


def hop(trial_dir: Path) -> None:
    """Leave a process that replaces itself with its child every few milliseconds, for ten seconds.

    Each of them writes its process id to ``pids``.
    """
    if os.fork() == 0:
        stop_at = time.monotonic() + 10
        while time.monotonic() < stop_at:
            os.setsid()
            _note(trial_dir)
            if os.fork() != 0:
                os._exit(0)
            time.sleep(0.002)
        os._exit(0)
    time.sleep(0.2)


def freeze(trial_dir: Path) -> None:
    """Stop this process: it reacts to no signal but SIGKILL and SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


def say_everything(trial_dir: Path) -> None:
    """Report that a GPU's driver starts, and more than a trial may report, and crash."""
    line = _line()
    with contextlib.suppress(OSError):
        for _ in range(1000):
            os.write(line, Driver(phase="starting").model_dump_json().encode())
    os._exit(9)


def _line() -> int:
    """Return the trial's one socket, through which it talks to its fork server."""
    [line] = [fd for fd in range(3, 256) if _is_open(fd) and stat.S_ISSOCK(os.fstat(fd).st_mode)]
    return line


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _fork_and(trial_dir: Path, then: Callable[[], object]) -> None:
    if os.fork() == 0:
        then()
        _note(trial_dir)
        time.sleep(3600)
        os._exit(0)


def _note(trial_dir: Path) -> None:
    with (trial_dir / "pids").open("a") as file:
        file.write(f"{os.getpid()}\n")


# --- endings -------------------------------------------------------------------------------------


def leave_result(trial_dir: Path, text: str) -> None:
    """Leave the result as the trainer does."""
    os.write(_line(), Said(text=text).model_dump_json().encode())


def leave_everything(trial_dir: Path, lines: list[str], printed: str, text: str) -> None:
    write_curve(trial_dir, lines)
    print(printed)
    leave_result(trial_dir, text)


def leave_result_and_continue(trial_dir: Path, text: str, then: str, given: dict[str, Any]) -> None:
    """Report a result, leave one as a file too, and then make another attack."""
    leave_result(trial_dir, text)
    (trial_dir / "result.json").write_text(text)
    globals()[then](trial_dir, **given)


def leave_huge_result(trial_dir: Path) -> None:
    with contextlib.suppress(OSError):
        leave_result(trial_dir, "x" * (64 << 20))


def leave_symlinked_result(trial_dir: Path, path: str) -> None:
    (trial_dir / "result.json").symlink_to(path)


def leave_directory_as_result(trial_dir: Path) -> None:
    (trial_dir / "result.json").mkdir()


def replace_log_by_symlink(trial_dir: Path, path: str) -> None:
    (trial_dir / "trainer.log").unlink()
    (trial_dir / "trainer.log").symlink_to(path)
    time.sleep(0.3)


def write_curve(trial_dir: Path, lines: list[str], held: int = 0) -> None:
    """Write the lines except the last ``held``, which :func:`let_go` writes."""
    with (trial_dir / "curve.jsonl").open("a") as curve:
        for number, line in enumerate(lines):
            if number == len(lines) - held:
                hold(trial_dir)
            curve.write(line + "\n")
            curve.flush()


def exit_with(trial_dir: Path, code: int, last_words: str = "") -> None:
    if last_words:
        print(last_words)
    sys.exit(code)


def die_by(trial_dir: Path, number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(10)


def divide_by_zero(trial_dir: Path) -> float:
    return 1 / 0


def report_error(trial_dir: Path, kind: str) -> None:
    kinds = {"SpecError": SpecError, "CorpusError": CorpusError, "MachineryError": MachineryError}
    raise kinds[kind](f"a {kind}, seen by the trainer; fix it")


def run_out_of_disk(trial_dir: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(trial_dir / "curve.jsonl"))


def nap(trial_dir: Path, s: float) -> None:
    time.sleep(s)


def hold(trial_dir: Path) -> None:
    """Run until :func:`let_go` is called."""
    go = trial_dir / "go"
    while not (go.exists() and go.stat().st_size):
        time.sleep(0.002)


def let_go(trial_dir: Path) -> None:
    """Let the trial that holds in this directory end."""
    (trial_dir / "go").write_text("go")


def tell_torch(trial_dir: Path) -> dict[str, Any]:
    """Return what a new trial finds out about itself and torch."""
    imported_before = "torch" in sys.modules
    threads = len(list(Path("/proc/self/task").iterdir()))
    open_files, pinned = [], []
    for fd in sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        try:
            where = str(Path(f"/proc/self/fd/{fd}").readlink())
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
        is_path = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_PATH
        (pinned if is_path and where.startswith("/proc/") else open_files).append(fd)
    with contextlib.suppress(OSError):
        os.read(pinned[0], 1)
        open_files += pinned  # they are readable
    import torch

    product = torch.ones(512, 512) @ torch.full((512, 512), 2.0)
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "torch_imported_before": imported_before,
        "cuda_untouched": not torch.cuda._is_in_bad_fork(),
        "threads": threads,
        "open_files": [fd for fd in open_files if fd != _line()],
        "matmul": product[0, 0].item(),
    }


# --- on a GPU ------------------------------------------------------------------------------------


def tell_driver(trial_dir: Path) -> dict[str, Any]:
    """Return whether the driver's library is loaded in this process, and the files it has open."""
    files = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            files.append(str(fd.readlink()))
    loaded = "libcuda.so" in Path("/proc/self/maps").read_text()
    return {"pid": os.getpid(), "loaded": loaded, "open": files}


def rename_own_thread(trial_dir: Path, name: str) -> str:
    """Rename a thread from another one, as some libraries do."""
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait)
    thread.start()
    comm = Path(f"/proc/self/task/{thread.native_id}/comm")
    try:
        comm.write_text(name)
        return comm.read_text().strip()
    finally:
        leave.set()


def write_to_the_server(trial_dir: Path) -> str:
    """Write to the process that forked this one, through its threads."""
    server = os.getppid()
    Path(f"/proc/{server}/task/{server}/oom_score_adj").write_text("overwritten")
    return "written"


def spare_oneself(trial_dir: Path, score: int) -> str:
    Path(f"/proc/self/task/{os.getpid()}/oom_score_adj").write_text(str(score))
    return "spared"


def read_with_a_program_in_memory(trial_dir: Path, path: str) -> str:
    fd = os.memfd_create("program")
    os.write(fd, Path("/bin/cat").read_bytes())
    command = [f"/proc/self/fd/{fd}", path]
    ended = subprocess.run(command, pass_fds=[fd], capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


def grow(trial_dir: Path, mib: int, pause_s: float) -> None:
    """Allocate and touch memory one MiB at a time, then wait."""
    hoard = []
    for _ in range(mib):
        hoard.append(bytearray(b"x" * (1 << 20)))
        time.sleep(pause_s)
    time.sleep(3600)


def tell_imported(trial_dir: Path, names: list[str]) -> list[str]:
    """Return which of these modules the fork server had imported."""
    return [name for name in names if name in sys.modules]


def keep_code(trial_dir: Path) -> dict[str, object]:
    """Write a kernel to Triton's cache twice, and try to move a file between directories."""
    from triton.runtime.cache import get_cache_manager

    cache = get_cache_manager("ab")
    kept = [Path(cache.put("kernel", "kernel.ptx")).read_text() for _ in range(2)]
    below = trial_dir / "below"
    below.mkdir()
    (below / "file").touch()
    try:
        (below / "file").rename(trial_dir / "file")
    except OSError as error:
        assert error.errno == errno.EXDEV
        return {"kept": kept, "moved_between_directories": False}
    return {"kept": kept, "moved_between_directories": True}
