"""Confine what a trial may use, enforced by the kernel in its own process before it trains.

Covered, each with a test that attacks it (tests/trainer/isolation/kernel/test_sandbox*.py,
test_seccomp.py, test_weighing.py, test_sealed_spec.py, test_ordinary_user.py):

* **Secrets.** The environment is built from an allowlist (:mod:`trainer.machine.environment`); of
  what that lets through, a name that speaks of a key, token, password or the like never passes, nor
  an address with a user in it. The environment and memory of the processes outside cannot be read
  through /proc.
* **Files.** Landlock: reads only what Python, torch, the device and the corpus need, and of the
  texts that a campaign confirms on those that the trial itself is to score; the user's home, the
  campaign and other trials are closed (directories of Python itself, where they lie in the home,
  are opened one by one). Writes only the trial's own directory, whatever links or
  renames it makes there, and where it makes code the campaign's compile cache. Mode, owner and
  extended attributes of files cannot be changed at all, and no directory can be watched.
* **Its own spec.** spec.json lies in the trial's directory; the copy that is trusted later lies
  outside (:mod:`trainer.isolation.sealed_spec`).
* **Network.** On a CPU no socket at all; on a GPU Unix ones, which can be neither connected nor
  written to by address, nor lie in a file (:mod:`trainer.isolation.kernel.seccomp`). TCP a second
  time through Landlock (ABI 4); abstract Unix sockets outside (ABI 6). On a CPU the lists of the
  machine's connections in /proc are closed.
* **Other processes.** No signal to any process outside (ABI 6), no ptrace, no process_vm_*; nobody
  else's limits, priority, scheduler or processors.
* **Privileges.** no_new_privs; of root's capabilities only those that ignore file modes are kept,
  so that root's limits hold too; no namespaces, which would bring them back; no mounts, modules,
  BPF, io_uring, keyrings.
* **Limits.** Size of a file, its space beyond the end included, open files, no core dump: by the
  kernel. Wall clock, memory held, number of processes and of threads, size of the log: by the
  supervisor, which polls ten times a second. Held is what is resident, swapped or in page tables of
  any process, whichever of its threads live (:mod:`trainer.isolation.weighing`); memory that is in
  no process cannot be had (System V segments and message queues, pages lent to pipes; on a CPU
  memfds and shared anonymous mappings) or is weighed too (on a GPU memfds and the buffers of
  sockets). On a CPU, private memory mapped has a wall at twice the limit and 1 GiB more. Where a
  cgroup is delegated the kernel counts all of this without looking, and nothing of it goes past
  its limit (:mod:`trainer.isolation.kernel.cgroup`, tests/trainer/isolation/
  test_delegated_cgroup.py).
* **Commands.** A trial that runs a menu's command is confined before it starts it, so all of the
  above holds for that, too, and is attacked through it. It reads its script's directory
  (:mod:`trainer.command.open_paths`: nothing hidden and no campaign, however deep, no link out of
  it, not the entry that holds the campaign), its interpreter's environment and the paths that the
  menu declares; names of files can be listed below the script's directory, whatever they are. Of a
  corpus it reads nothing.
  What /proc says of the processes that it starts is closed to these themselves. It has a /dev/shm
  of its own where that can be had (:mod:`trainer.isolation.kernel.shared_memory`).
* **Lifetime.** Whatever a trial leaves running ends with it, and all of it with the supervisor,
  even one killed by SIGKILL (:mod:`trainer.isolation.forkserver`).

Not covered:

* A kernel without Landlock: the run is refused, or says UNSANDBOXED. Below ABI 2 (Linux 5.19) no
  file can be moved to another directory, which trials that make code do without
  (:mod:`trainer.backends.kernels.triton_cache`). Below ABI 3, 4, 5 and 6 what those versions
  brought is missing: truncating files, TCP (seccomp still refuses it), ioctl on devices, and
  signals and abstract sockets; :meth:`Layers.describe` names it. On processors other than x86_64
  and AArch64 there is no seccomp filter, so all that rests on it stays open: UDP, Unix sockets,
  file metadata, other processes' limits, namespaces, memory in no process. The campaign records
  what it had.
* Code. execve() of a file in the directories that a trial writes is refused, but that keeps nothing
  from running there: the dynamic loader maps a program without executing it, and Python calls any
  machine code. Whatever runs is confined as the trial is.
* Existence, size and times of files (stat), and setting the times of files the user owns; all of
  /usr and /opt is readable.
* What is hidden, or a campaign's, below a path that a menu declares under ``reads``; and what comes
  to be so, below a script's directory, while a trial runs. A hard link to a hidden file is a file.
* The sum of file sizes: many files below the limit can still fill the disk. Processor time within
  the wall clock.
* Kernel memory, without a cgroup: buffers of pipes, 64 KiB each (Linux allows a user 64 MiB and two
  pages a pipe more; root has no such limit), and epoll watches, about 50 MiB a process with 1,024
  open files, and 4 % of the machine's memory a user (fs.epoll.max_user_watches).
* On a GPU: an abstract name for a Unix socket, which CUDA's driver takes when it starts, so that a
  process outside could call the trial; shared mappings that no process has touched of late; the
  lists of the machine's connections; and GPU memory: only memory of processes is weighed (on a
  machine whose GPU shares it, what CUDA allocates does not count as resident, but what is left is
  watched).
* Binding of a trial's threads to processors, which the C library would do from another thread:
  OMP_PROC_BIND and its like are not passed on.
* Bursts between two polls of the supervisor, a tenth of a second: of the log, and without a cgroup
  of memory, processes and threads. RLIMIT_NPROC, the backstop behind the count of threads, does not
  bind root.
* The GPU driver: a CUDA trial may open and ioctl its device nodes, read all of /sys, and write what
  its own threads have in /proc (:mod:`trainer.isolation.kernel.driver_paths`); a user's who is not
  root may so give up being the first whom the out-of-memory killer takes.
* A trial that lies about its own score: a result is checked for form, not for truth. A command can
  lie in what it prints or in its score's file, but it cannot report a result: the trial's own
  process does that on a line that no command reaches (:mod:`trainer.isolation.driver_line`), and
  how the trial ended counts first (:mod:`trainer.isolation.outcome`).
* A trial that makes code and lies about the next ones. The compile cache is the one place that a
  trial leaves to those after it: machine code and pickles, which they load. It is the user's who
  runs the campaign, is made by the first trial that needs it, before that is confined, and is one
  campaign's own. A trial that ran hostile code could leave some there; later trials of that
  campaign would run it, each inside this same sandbox, without keys, network, or a way to the
  journal. What they could do is what any trial can: lie about a score, now not their own. Trials
  of the built-in trainer run no code but this package's, and a config is data. A command's trials
  share one too, since torch.compile costs a minute without: all of them run one script, whose
  hash the campaign records, and which can make up its own scores anyway. It is there with
  ``compile``, for commands, and on CUDA for the torch backend's kernels; deleting the directory
  costs time alone.
* Without a cgroup, descendants that fled the session when the fork server itself is killed by
  SIGKILL: the supervisor ends those it had seen at its last poll.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from autoresearch.errors import MachineryError, SandboxError
from trainer.command.workspace import Reach
from trainer.isolation.kernel import landlock, seccomp
from trainer.isolation.kernel.capabilities import drop_capabilities
from trainer.isolation.kernel.landlock import SystemPaths
from trainer.isolation.kernel.libc import check, libc
from trainer.isolation.kernel.rlimits import limit_resources, tasks_of_this_user
from trainer.spec import TrialSpec

if sys.platform == "linux":
    from landlockpy import abi_version


def move_home(scratch: Path, compile_cache: str | None = None) -> None:
    """Point this process's home and temporary files, caches included, at ``scratch``, and
    torch.compile's cache at ``compile_cache``, which is created.

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
    """Means of confinement that this kernel has."""

    landlock_abi: int
    """0: none."""
    seccomp: bool

    @classmethod
    def detect(cls) -> Layers:
        """Return the layers of this kernel."""
        if sys.platform != "linux":
            return cls(0, False)
        try:
            abi = abi_version()
        except OSError:  # a container that forbids the system call itself
            abi = 0
        return cls(abi, seccomp.available())

    @property
    def confine(self) -> bool:
        """Whether access to files is confined."""
        return self.landlock_abi > 0

    @property
    def open(self) -> tuple[str, ...]:
        """Return what this kernel's Landlock leaves open to a confined trial."""
        return tuple(what for abi, what in _MISSING_BELOW if self.landlock_abi < abi)

    def describe(self) -> str:
        """Return ``landlock abi 7, seccomp``; it names what the kernel leaves open, and begins with
        UNSANDBOXED where nothing is confined."""
        first = "UNSANDBOXED"
        if self.confine:
            first = f"landlock abi {self.landlock_abi}"
            first += f" (not confined: {'; '.join(self.open)})" if self.open else ""
        return f"{first}, {'seccomp' if self.seccomp else 'no seccomp'}"


_MISSING_BELOW = (
    (3, "truncating files of the same user"),
    (4, "TCP, but for seccomp"),
    (5, "ioctl on devices"),
    (6, "signals and abstract sockets"),
)
"""Landlock's versions, and what stays open below each."""
_ONE_DIRECTORY_CACHE = "trainer.backends.kernels.triton_cache:OneDirectoryCache"


# --- in the trial's process --------------------------------------------------------------------


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
        self, spec: TrialSpec, trial_dir: Path, reach: Reach | None, *, heldout: bool = True
    ) -> None:
        """Give up permanently all that this trial does not need. This process has one thread.

        :param reach: what a command may read, if one trains.
        :param heldout: whether it may read the texts that are scored.
        :raises SandboxError: if that is impossible.
        """
        if spec.makes_code and self.layers.landlock_abi == 1:
            # That version refuses every rename from one directory to another.
            os.environ["TRITON_CACHE_MANAGER"] = _ONE_DIRECTORY_CACHE
        try:
            limit_resources(spec, self.user_tasks)
            if sys.platform == "linux":
                check(libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
                if self.layers.confine:
                    abi = self.layers.landlock_abi
                    landlock.restrict(self.paths, spec, trial_dir, reach, abi, heldout=heldout)
                drop_capabilities()
            if self.layers.seccomp:
                seccomp.install(spec.device)
        except OSError as error:
            raise SandboxError(
                f"the trial could not be confined ({error}); `autoresearch doctor` lists what"
                " this machine offers"
            ) from error


_PR_SET_NO_NEW_PRIVS = 38
