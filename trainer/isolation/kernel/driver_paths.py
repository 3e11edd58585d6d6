"""What CUDA's driver library touches of the file system when it starts, and no more.

libcuda is closed; this is what others saw it do under confinement:

* it names its threads by writing ``/proc/self/task/<tid>/comm`` (driver 570 and newer), and takes a
  refusal for a broken system: ``cuInit`` returns 304 (github.com/NVIDIA/OpenShell, pull request
  710; github.com/nolabs-ai/nono, pull request 673; on a GB10 github.com/NVIDIA/NemoClaw, issue
  4016);
* it reads ``/proc/driver/nvidia`` and ``/proc/driver/nvidia-uvm`` (the same), ``/proc/devices``,
  ``/proc/modules``, ``/proc/sys/vm/mmap_min_addr`` and the size of a memory block in /sys (the
  ``cuda-support`` interface of github.com/canonical/snapd);
* it opens and controls device nodes, ``nvidia-uvm-tools`` among them;
* it makes memory files (NVIDIA/OpenShell, issue 1696: 304 without) and listens on an abstract Unix
  socket ``@cuda-uvmfd-…`` (snapd again), which is for :mod:`trainer.isolation.kernel.seccomp` to
  leave.

A rule holds for a directory and all below, so the names of threads cannot be opened alone: what
else ``/proc/self/task`` has (memory, the preference for the out-of-memory killer, the attributes of
security modules) is the trial's own, and the kernel's own checks still apply to it. The rule does
not hold for a process that the trial starts: that one has another directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_KERNEL = ("/proc/modules", "/proc/sys/vm/mmap_min_addr", "/sys")
_READABLE = "proc/driver/nvidia*"
_DEVICES = ("nvidia*", "nvhost*", "nvmap", "nvgpu", "dxg", "dri")

OWN_TASKS = Path("/proc/self/task")
"""The names of this process's threads, and what else it has of each."""


@dataclass(frozen=True, slots=True)
class DriverPaths:
    """Where the driver's files are on this machine. Looked for at each trial: the first process
    that uses a GPU after a boot may make its device nodes."""

    root: Path = Path("/")
    """What /proc/driver and /dev lie below."""

    def readable(self) -> Iterator[Path]:
        """What it reads."""
        yield from map(Path, _KERNEL)
        yield from self.root.glob(_READABLE)

    def devices(self) -> Iterator[Path]:
        """Nodes, and directories of nodes, that it opens, maps and controls."""
        for pattern in _DEVICES:
            yield from (self.root / "dev").glob(pattern)
