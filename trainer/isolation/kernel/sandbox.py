"""Confine what a trial may use, enforced by the kernel in its own process before it trains.

Covered, each with a test that attacks it (docs/sandbox.md names them):

* **Secrets.** The environment is built from an allowlist (:mod:`trainer.machine.environment`).
  Names that suggest a key, token or password, and addresses with a user in them, never pass. The
  environment and memory of outside processes cannot be read through /proc.
* **Files.** Landlock lets a trial read only what Python, torch, the device and the corpus need,
  and those texts of a confirmation that it scores itself. The user's home, the campaign and other
  trials are closed; directories of Python that lie in the home are opened one by one. A trial
  writes only its own directory, even through links and renames, and the campaign's compile cache
  if it compiles code.
* **Its own spec.** spec.json lies in the trial's directory; the copy that is trusted later lies
  outside (:mod:`trainer.isolation.trial_files`).
* **Commands.** A command gets a world of its own (:mod:`trainer.isolation.kernel.world`): what is
  granted to it is all that has a name there, and it does in it what it likes. It reads its
  interpreter's environment, the paths that the menu declares, and its script's directory, except
  hidden files, campaigns, links that lead out, and the entry that holds the campaign
  (:mod:`trainer.command.open_paths`). It can list every name below that directory. It reads no
  corpus. The process that reads its output is confined, too, without its world.
* **Network.** A command's world has one loopback interface. Other trials have no sockets on a CPU,
  and on a GPU Unix sockets that cannot be connected, written to by address, or bound to a file
  (:mod:`trainer.isolation.kernel.seccomp`). Landlock refuses TCP once more (ABI 4), and abstract
  Unix sockets outside (ABI 6).
* **Other processes.** No signal to an outside process (ABI 6), no ptrace, no process_vm_*; no
  change of another process's limits, priority, scheduler or processors. A command's world names
  none.
* **Privileges.** no_new_privs. Of root's capabilities only those that ignore file modes are kept,
  so that root's limits hold too. No further namespaces, which would bring the capabilities back; no
  mounts, modules, BPF, io_uring or keyrings.
* **Limits.** The kernel limits the size of a file, including space beyond its end, open files and
  core dumps. The supervisor, which polls ten times a second, limits wall clock, memory held, the
  number of processes and threads, and the size of the log. Memory held is what is resident, swapped
  or in page tables of any process, also if its main thread has ended
  (:mod:`trainer.isolation.usage`). Memory that belongs to no process is refused (System V
  segments, message queues, pages lent to pipes; on a CPU memfds, and for the built-in trainer
  shared anonymous mappings) or counted too (memfds on a GPU, shared mappings with or without
  resident pages, socket buffers, and the /dev/shm of a world). On a CPU, mapped private memory is
  limited to twice the limit and 1 GiB more. If a cgroup is delegated, the kernel itself enforces
  the limits of memory and processes (:mod:`trainer.isolation.kernel.cgroup`).
* **Lifetime.** The processes that a trial leaves end with it, and all end with the supervisor, even
  if that is killed by SIGKILL (:mod:`trainer.isolation.forkserver`). Those of a world end with its
  first process, whatever killed that.

Not covered:

* A kernel without Landlock: the run is refused, or marked UNSANDBOXED. Below ABI 2 (Linux 5.19) no
  file can be moved to another directory; trials that compile code work without that
  (:mod:`trainer.backends.kernels.triton_cache`). Below ABI 3, 4, 5 and 6 Landlock lacks,
  respectively, truncation, TCP (seccomp still refuses it), ioctl on devices, and signals and
  abstract sockets; :meth:`Layers.describe` names what is missing. Processors other than x86_64 and
  AArch64 have no seccomp filter, which leaves UDP, Unix sockets, file metadata, other processes'
  limits, namespaces and memory in no process open. The campaign records which layers it had.
* Machines that allow no namespaces. There a command is confined like the built-in trainer, but for
  pairs of sockets; only its own process may read /proc/self and start CUDA.
* Code. Outside a world, execve() of a file in a directory that a trial writes is refused, but code
  there can still run: the dynamic loader maps a program without executing it, and Python calls any
  machine code. Whatever runs is confined as the trial is.
* Existence, size and times of files (stat), and setting the times of files the user owns. All of
  /usr and /opt is readable.
* Hidden files and campaigns below a path that a menu declares under ``reads``, and those created
  below a script's directory while a trial runs. A hard link to a hidden file is an ordinary file.
* The sum of file sizes: many files below the limit can fill the disk. Processor time within the
  wall clock.
* Kernel memory, without a cgroup: buffers of pipes, 64 KiB each, so 32 MiB per process with 1,024
  open files (Linux allows a user 64 MiB and two pages more per pipe; root has no such limit), and
  epoll watches, 0.2 KiB each. Open files do not limit watches, since a file can be watched under
  many numbers; Linux does, by default at 4 % of the machine's memory per user
  (fs.epoll.max_user_watches).
* Unix sockets with a path that come to be in a granted directory after a world was made, below
  Landlock ABI 9.
* On a GPU: outside a world, an abstract name for a Unix socket, which CUDA's driver takes when it
  starts, so that an outside process could call the trial, and the machine's lists of connections;
  a memfd on its way through a socket; GPU memory. Only memory of processes is counted. On a machine
  whose GPU shares its memory, CUDA's allocations do not count as resident, but the supervisor
  watches the memory that is left.
* Binding threads to processors, which the C library would do from another thread: OMP_PROC_BIND
  and similar variables are not passed on.
* Bursts between two polls of the supervisor, a tenth of a second: of the log, and without a cgroup
  of memory, processes and threads. RLIMIT_NPROC, the backstop behind the count of threads, does not
  bind root.
* The GPU driver: a CUDA trial may open and ioctl its device nodes, read all of /sys, and write its
  own threads' entries in /proc (:mod:`trainer.isolation.kernel.landlock`). So the trial of a
  user who is not root can stop being the first that the out-of-memory killer takes.
* A trial that lies about its own score: a result is checked for form, not for truth. A command can
  print or write a false score, but it cannot report a result: the trial's own process does that on
  a connection that no command reaches (:mod:`trainer.isolation.messages`), and how the trial
  ended counts first (:mod:`trainer.isolation.outcome`).
* A trial that leaves false compiled code. The compile cache is the only place that a trial leaves
  to later ones: machine code and pickles, which they load. It belongs to the user who runs the
  campaign and to one campaign; the first trial that needs it creates it before it is confined. A
  trial that ran hostile code could leave code there. Later trials of the campaign would run it
  inside this same sandbox, without keys, network or access to the journal, so it could falsify
  their scores. Trials of the built-in trainer run no code but this package's and the functions of
  code knobs. A command's trials share a cache too, since torch.compile costs a minute without one:
  all of them run one script, whose hash the campaign records, and which can print any score anyway.
  The cache exists for commands and on CUDA; deleting the directory costs only time.
* Without a cgroup or a world, descendants that fled the session when the fork server itself is
  killed by SIGKILL: the supervisor ends those it had seen at its last poll.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import psutil
from landlockpy import AccessFS, abi_version

from autoresearch.errors import SandboxError
from autoresearch.files import writing
from trainer.command.workspace import Reach
from trainer.isolation.kernel import landlock, seccomp, world
from trainer.isolation.kernel.landlock import SystemPaths
from trainer.isolation.kernel.libc import check, drop_capabilities, libc
from trainer.schema import TrialSpec


def move_home(scratch: Path, compile_cache: str | None = None) -> None:
    """Point this process's home and temporary files, caches included, at ``scratch``, and
    torch.compile's cache at ``compile_cache``, which is created.

    :raises MachineryError: where it cannot be.
    """
    os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    if compile_cache is not None:
        with writing(
            f"the compile cache {compile_cache}",
            instead="give it another directory",
        ):
            Path(compile_cache).mkdir(parents=True, exist_ok=True)
    compiled = Path(compile_cache or scratch / "compiled")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(compiled)
    os.environ["TRITON_CACHE_DIR"] = str(compiled / "triton")


# --- what the kernel offers --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layers:
    """Means of confinement that this kernel has."""

    landlock_abi: int
    """0: none."""
    seccomp: bool
    world: bool = False
    """Whether each command gets a world of its own (:mod:`trainer.isolation.kernel.world`)."""

    @classmethod
    def detect(cls) -> Layers:
        """Return the layers of this machine."""
        try:
            abi = abi_version()
        except OSError:  # a container that forbids the system call itself
            abi = 0
        return cls(abi, seccomp.available(), world=not world.refusal())

    @property
    def confine(self) -> bool:
        """Whether access to files is confined."""
        return self.landlock_abi > 0

    @property
    def open(self) -> tuple[str, ...]:
        """Return what this kernel's Landlock leaves open to a confined trial."""
        return tuple(what for abi, what in _MISSING_BELOW if self.landlock_abi < abi)

    def describe(self) -> str:
        """Return ``landlock abi 7, seccomp, namespaces``; it names what the kernel leaves open, and
        begins with UNSANDBOXED if nothing is confined."""
        first = "UNSANDBOXED"
        if self.confine:
            first = f"landlock abi {self.landlock_abi}"
            first += f" (not confined: {'; '.join(self.open)})" if self.open else ""
        second = "seccomp" if self.seccomp else "no seccomp"
        return f"{first}, {second}, {'namespaces' if self.world else 'no namespaces'}"


_MISSING_BELOW = (
    (3, "truncating files of the same user"),
    (4, "TCP, but for seccomp"),
    (5, "ioctl on devices"),
    (6, "signals and abstract sockets"),
)
"""Landlock's versions, and what stays open below each."""
_ONE_DIRECTORY_CACHE = "trainer.backends.kernels.triton_cache:OneDirectoryCache"


# --- in the trial's process --------------------------------------------------------------------

Role: TypeAlias = Literal["trainer", "reader", "command"]


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Facts shared by all trials, determined once so that a trial's start costs little."""

    layers: Layers
    user_tasks: int
    """Threads that this user runs already; RLIMIT_NPROC counts them too."""
    paths: SystemPaths

    @classmethod
    def prepare(cls, layers: Layers, root: Path = Path("/")) -> Sandbox:
        """Examine this process, this machine, and the GPU driver's files below ``root``."""
        paths = SystemPaths.find(os.environ.get("LD_LIBRARY_PATH", ""), root)
        if layers.confine:
            abi_version()  # its first call looks for the C library, for which it starts ldconfig
        if layers.seccomp:
            seccomp.prepare()
        return cls(layers, tasks_of_this_user(), paths)

    def confine(
        self,
        spec: TrialSpec,
        trial_dir: Path,
        reach: Reach | None,
        *,
        role: Role = "trainer",
        heldout: bool = True,
    ) -> None:
        """Give up permanently all that this trial does not need. This process has one thread.

        :param reach: what a command may read, if one trains.
        :param role: ``command`` for the process that becomes it, in a world of its own if there is
            one; ``reader`` for the process that reads its output.
        :param heldout: whether it may read the texts that are scored.
        :raises SandboxError: if that is impossible.
        """
        if spec.makes_code and self.layers.landlock_abi == 1:
            # That version refuses every rename from one directory to another.
            os.environ["TRITON_CACHE_MANAGER"] = _ONE_DIRECTORY_CACHE
        in_world = role == "command" and self.layers.world
        granted = landlock.grants(
            self.paths, spec, trial_dir, reach, heldout=heldout, in_world=in_world
        )
        try:
            if in_world and reach is not None:
                world.enter(world_of(granted, spec, reach))
            limit_resources(spec, self.user_tasks)
            check(libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
            if self.layers.confine:
                abi, is_reader = self.layers.landlock_abi, role == "reader"
                landlock.restrict(granted, abi, is_reader=is_reader, network=in_world)
            drop_capabilities()
            if self.layers.seccomp and role == "command":
                seccomp.install(spec.device, "world" if in_world else "command")
            elif self.layers.seccomp:
                seccomp.install("cpu" if role == "reader" else spec.device)
        except OSError as error:
            raise SandboxError(
                f"the trial could not be confined ({error}); `autoresearch doctor` lists what"
                " this machine offers"
            ) from error


def world_of(granted: landlock.Grants, spec: TrialSpec, reach: Reach) -> world.Plan:
    """Return the world that has what is granted, and nothing else."""
    readable, writable, devices = [], [], []
    for path, access in granted:
        if path.is_relative_to(world.PROCESSES) or path in {*world.OWN, world.HOSTS, world.ROOT}:
            continue  # the world makes its own
        if access & AccessFS.IOCTL_DEV or path.is_relative_to("/dev"):
            devices.append(path)
        elif access & AccessFS.WRITE_FILE:
            writable.append(path)
        else:
            readable.append(path)
    memory_gib = spec.limits.memory_gib
    return world.Plan(
        readable=readable,
        writable=writable,
        devices=devices,
        covered=reach.closed,
        names=(*reach.names, Path(sys.executable)),
        size_bytes=None if memory_gib is None else int(memory_gib * (1 << 30)),
    )


_PR_SET_NO_NEW_PRIVS = 38


_SPARE_DATA_BYTES = 1 << 30
_STACK_BYTES = 16 << 20
"""Stack of one thread, with a margin; there is memory for a thread per processor."""


def limit_resources(spec: TrialSpec, user_tasks: int) -> None:
    """Set this process's limits to those of ``spec``; the user already runs ``user_tasks``.

    :raises OSError: if the kernel refuses.
    """
    limits = spec.limits
    wanted = {
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_NPROC: user_tasks + limits.tasks,
        # Not 0: the kernel treats 1 as no dump even if core_pattern pipes to a collector.
        resource.RLIMIT_CORE: 1,
    }
    if limits.memory_gib is not None and spec.device == "cpu":
        # Far above the limit on held memory: this only stops growth of private memory, touched or
        # not, that is too fast for the supervisor's polling.
        pages = int(Path("/proc/self/statm").read_bytes().split()[5])
        stacks = _STACK_BYTES * (os.cpu_count() or 1)
        mapped = pages * resource.getpagesize()
        most = mapped + int(2 * limits.memory_gib * (1 << 30)) + _SPARE_DATA_BYTES + stacks
        wanted[resource.RLIMIT_DATA] = most
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        capped = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (capped, capped))


def tasks_of_this_user() -> int:
    """Return the number of threads that this process's user runs on this machine."""
    tasks = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == os.getuid():
                tasks += process.num_threads()
    return tasks
