"""List the files that CUDA's driver library uses when it starts, and no others.

libcuda is closed; this is what others observed under confinement:

* it names its threads by writing ``/proc/self/task/<tid>/comm`` (driver 570 and newer), and treats
  a refusal as a broken system: ``cuInit`` returns 304 (github.com/NVIDIA/OpenShell, pull request
  710; github.com/nolabs-ai/nono, pull request 673; on a GB10 github.com/NVIDIA/NemoClaw, issue
  4016);
* it reads ``/proc/driver/nvidia`` and ``/proc/driver/nvidia-uvm`` (the same), ``/proc/devices``,
  ``/proc/modules``, ``/proc/sys/vm/mmap_min_addr`` and the size of a memory block in /sys (the
  ``cuda-support`` interface of github.com/canonical/snapd);
* it opens and controls device nodes, ``nvidia-uvm-tools`` among them;
* it makes memory files (NVIDIA/OpenShell, issue 1696: 304 without) and listens on an abstract Unix
  socket ``@cuda-uvmfd-…`` (snapd again), which :mod:`trainer.isolation.kernel.seccomp` must
  allow.

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
"""Names of this process's threads, and other files of each."""


@dataclass(frozen=True, slots=True)
class DriverPaths:
    """Locations of the driver's files on this machine. They are searched for each trial, since the
    first process that uses a GPU after a boot may create its device nodes."""

    root: Path = Path("/")
    """Root above /proc/driver and /dev."""

    def readable(self) -> Iterator[Path]:
        """Yield the paths that it reads."""
        yield from map(Path, _KERNEL)
        yield from self.root.glob(_READABLE)

    def devices(self) -> Iterator[Path]:
        """Yield nodes, and directories of nodes, that it opens, maps and controls."""
        for pattern in _DEVICES:
            yield from (self.root / "dev").glob(pattern)
