"""What a trial may touch, enforced by the kernel in the trial's own process before it trains.

Covered, each with a test that attacks it (tests/trainer/test_sandbox.py):

* **Secrets.** The environment is built from :data:`PASSED_VARIABLES`; a name that speaks of a key,
  token, secret, password or credential never passes. The environment and memory of the processes
  outside cannot be read through /proc.
* **Files.** Landlock: reads only what Python, torch, the device and the corpus need; the user's
  home, the campaign and other trials are closed (directories of Python itself, where they lie in
  the home, are opened one by one). Writes only the trial's own directory, whatever links or
  renames it makes there, and where it makes code the campaign's compile cache. Nothing in those
  directories can be executed as a program. Mode, owner and
  extended attributes of files cannot be changed at all.
* **Network.** No socket but Unix ones, and no ``connect()`` on those (:mod:`trainer.seccomp`); TCP
  a second time through Landlock (ABI 4); abstract Unix sockets outside (ABI 6).
* **Other processes.** No signal to any process outside (ABI 6), no ptrace, no process_vm_*.
* **Privileges.** no_new_privs; of root's capabilities only those that ignore file modes are kept,
  so that root's limits hold too; no mounts, namespaces, modules, BPF, io_uring, keyrings.
* **Limits.** Size of a file, open files, no core dump: by rlimit. Wall clock, resident memory,
  number of processes, size of the log: by the supervisor, which looks ten times a second.
* **Lifetime.** Whatever a trial leaves running ends with it, and all of it with the supervisor,
  even one killed by SIGKILL (:mod:`trainer.forkserver`).

Not covered:

* A kernel without Landlock: the run is refused, or says UNSANDBOXED. Below ABI 4, 5 and 6 what
  those versions brought is missing: TCP (seccomp still refuses it), ioctl on devices, and signals
  and abstract sockets. On processors other than x86_64 and AArch64 there is no seccomp filter, so
  UDP, Unix sockets and file metadata stay open. The campaign records which of the two it had.
* Datagrams through ``sendmsg`` to a Unix socket's path, before Landlock ABI 9.
* Existence, size and times of files (stat), and setting the times of files the user owns; System V
  shared memory and semaphores; all of /usr and /opt is readable.
* The sum of file sizes: many files below the limit can still fill the disk. Processor time within
  the wall clock. GPU memory: only resident memory of processes is watched (on a machine whose GPU
  shares it, what CUDA allocates does not count as resident, but what is left is watched).
* Bursts between two looks of the supervisor, a tenth of a second: of memory, processes and log.
  RLIMIT_NPROC, the backstop behind the count of processes, does not bind root.
* The GPU driver: a CUDA trial may open and ioctl its device nodes, read all of /sys, and write what
  its own threads have in /proc (:mod:`trainer.driver_paths`); a user's who is not root may so give
  up being the first whom the out-of-memory killer takes.
* A trial that lies about its own score: result.json is checked for form, not for truth.
* A trial that makes code and lies about the next ones. The compile cache is the one place that a
  trial leaves to those after it: machine code and pickles, which they load. It is the user's who
  runs the campaign, is made by the first trial that needs it, before that is confined, and is one
  campaign's own. A trial that ran hostile code could leave some there; later trials of that
  campaign would run it, each inside this same sandbox, without keys, network, or a way to the
  journal. What they could do is what any trial can: lie about a score, now not their own. Trials
  run no code but this package's, and a config is data, so nobody is handed that door. It is there
  with ``compile``, and on CUDA for the torch backend's kernels; deleting the directory costs time
  alone.
* Descendants that fled the session when the fork server itself is killed by SIGKILL: the
  supervisor ends those it had seen at its last look.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from trainer import landlock, seccomp
from trainer.errors import MachineryError, SandboxError
from trainer.landlock import SystemPaths
from trainer.libc import check, libc
from trainer.spec import TrialSpec

if sys.platform == "linux":
    from landlockpy import abi_version

# --- environment -------------------------------------------------------------------------------

PASSED_VARIABLES = frozenset(
    "PATH LANG LANGUAGE TZ LD_LIBRARY_PATH PYTHONPATH PYTHONHOME PYTHONUSERBASE".split()
)
"""Handed on to the trial's process, by name."""
PASSED_PREFIXES = tuple(
    "LC_ CUDA_ CUDNN_ CUBLAS_ NVIDIA_ NVTE_ OMP_ GOMP_ KMP_ MKL_ OPENBLAS_ PYTORCH_ TORCH_"
    " TRITON_".split()
)
"""Handed on to the trial's process, by the beginning of the name."""
SECRET_WORDS = tuple("KEY TOKEN SECRET PASS CRED AUTH COOKIE BEARER PRIVATE".split())
"""Never handed on when the name contains one (NVIDIA_API_KEY begins like a device setting)."""
SECRET_PARTS = frozenset("PWD PW PAT JWT OTP PIN PSK SAS SID CERT DSN".split())
"""Never handed on when one stands alone between underscores: CUDA_PAT, but not CUDA_PATH."""
_BINDING = frozenset("OMP_PROC_BIND OMP_PLACES GOMP_CPU_AFFINITY".split())
"""A trial's threads may choose no processors for each other (:mod:`trainer.seccomp`), and libgomp
ends the process where it was told to and cannot."""
_ADDRESS_OF_A_USER = re.compile(r"://[^/\s]*@")

SPIN_COUNT = "10000"
"""How long an OpenMP thread waits awake for the others. By default it is so long that one busy
neighbour makes a trial ten times slower: on two cores a step of 25 ms took 24 ms (default) and 29
(this) alone, 340 to 1,800 and 110 beside one busy process. The environment's own setting wins."""


def allowed_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The part of ``environ``, by default this process's, that trials may see; with string hashing
    made reproducible."""
    kept = {
        name: value
        for name, value in (os.environ if environ is None else environ).items()
        if (name in PASSED_VARIABLES or name.startswith(PASSED_PREFIXES))
        and name not in _BINDING
        and not _may_be_secret(name, value)
    }
    defaults = {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "GOMP_SPINCOUNT": SPIN_COUNT,
        # Else Inductor starts processes that want semaphores in /dev/shm, which trials may not.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    return {**defaults, **kept, "PYTHONHASHSEED": "0"}


def _may_be_secret(name: str, value: str) -> bool:
    """By its name; or by a value that is an address with a user in it."""
    upper = name.upper()
    return (
        any(word in upper for word in SECRET_WORDS)
        or not SECRET_PARTS.isdisjoint(upper.split("_"))
        or _ADDRESS_OF_A_USER.search(value) is not None
    )


def move_home(scratch: Path, compile_cache: str | None = None) -> None:
    """Point this process's home and temporary files, caches included, at ``scratch``; but what
    torch.compile keeps at ``compile_cache``, which is made.

    :raises MachineryError: where it cannot be.
    """
    os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    if compile_cache is not None:
        try:
            Path(compile_cache).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MachineryError(
                f"the compile cache {compile_cache} cannot be made ({error.strerror}); free some"
                " space there, give it another directory, or go without compile"
            ) from error
    compiled = Path(compile_cache or scratch / "compiled")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(compiled)
    os.environ["TRITON_CACHE_DIR"] = str(compiled / "triton")


# --- what the kernel offers --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layers:
    """The kernel's means of confinement on this machine."""

    landlock_abi: int
    """0: none."""
    seccomp: bool

    @classmethod
    def detect(cls) -> Layers:
        """What this kernel has."""
        if sys.platform != "linux":
            return cls(0, False)
        try:
            abi = abi_version()
        except OSError:  # a container that forbids the system call itself
            abi = 0
        return cls(abi, seccomp.available())

    @property
    def confine(self) -> bool:
        """Whether the promises about files hold."""
        return self.landlock_abi > 0

    def describe(self) -> str:
        """``landlock abi 7, seccomp``; begins with UNSANDBOXED where that is so."""
        first = f"landlock abi {self.landlock_abi}" if self.confine else "UNSANDBOXED"
        return f"{first}, {'seccomp' if self.seccomp else 'no seccomp'}"


# --- in the trial's process --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What is the same for every trial, found out once so that a trial's start costs little."""

    layers: Layers
    user_tasks: int
    """Threads that this user runs already; RLIMIT_NPROC counts them too."""
    paths: SystemPaths

    @classmethod
    def prepare(cls, layers: Layers, root: Path = Path("/")) -> Sandbox:
        """Look at this process and this machine; at the GPU driver's files below ``root``."""
        paths = SystemPaths.find(os.environ.get("LD_LIBRARY_PATH", ""), root)
        if layers.seccomp:
            seccomp.prepare()
        return cls(layers, _tasks_of_this_user(), paths)

    def confine(self, spec: TrialSpec, trial_dir: Path) -> None:
        """Give up, for good, all that this trial does not need. This process has one thread.

        :raises SandboxError: where that is not possible.
        """
        try:
            _limit_resources(spec, self.user_tasks)
            if sys.platform == "linux":
                check(libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
                if self.layers.confine:
                    landlock.restrict(self.paths, spec, trial_dir)
                drop_capabilities()
            if self.layers.seccomp:
                seccomp.install(spec.device)
        except OSError as error:
            raise SandboxError(
                f"the trial could not be confined ({error}); see what this machine offers with"
                " `autoresearch doctor`, or run with --allow-unsandboxed"
            ) from error


_PR_SET_NO_NEW_PRIVS = 38
_SPARE_TASKS = 4096


_SPARE_DATA_BYTES = 1 << 30
_STACK_BYTES = 16 << 20
"""Of a thread for each processor, and then some."""


def _limit_resources(spec: TrialSpec, user_tasks: int) -> None:
    limits = spec.limits
    wanted = {
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_NPROC: user_tasks + _SPARE_TASKS,
        # Not 0: the kernel takes 1 to mean no dump even where core_pattern pipes to a collector.
        resource.RLIMIT_CORE: 1,
    }
    if sys.platform == "linux" and limits.memory_gib is not None and spec.device == "cpu":
        wanted[resource.RLIMIT_DATA] = _most_data_bytes(limits.memory_gib)
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        capped = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (capped, capped))


def _most_data_bytes(memory_gib: float) -> int:
    """Private memory that a trial may map, touched or not: a wall well behind the limit on what it
    holds, which nothing honest meets, for what would be too fast for the supervisor's looks."""
    pages = int(Path("/proc/self/statm").read_bytes().split()[5])
    stacks = _STACK_BYTES * (os.cpu_count() or 1)
    mapped = pages * resource.getpagesize()
    return mapped + int(2 * memory_gib * (1 << 30)) + _SPARE_DATA_BYTES + stacks


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


_CAPABILITY_VERSION_3 = 0x20080522
_KEPT_CAPABILITIES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def drop_capabilities(keep: int = _KEPT_CAPABILITIES) -> None:
    """Keep what lets root read a user's files (Landlock says which); capabilities(7).

    :raises OSError: where the kernel refuses.
    """
    header, data = _CapHeader(_CAPABILITY_VERSION_3, 0), (_CapData * 2)()
    check(libc().capget(ctypes.byref(header), data), "capget")
    kept = data[0].permitted & keep
    data[0].effective = data[0].permitted = kept
    data[1].effective = data[1].permitted = 0
    data[0].inheritable = data[1].inheritable = 0
    check(libc().capset(ctypes.byref(header), data), "capset")


def _tasks_of_this_user() -> int:
    tasks = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == os.getuid():
                tasks += process.num_threads()
    return tasks
