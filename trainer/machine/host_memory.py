"""The memory that a GPU shares with its machine: what a trial may take, and what is kept from it.

A GB10 has one pool for both. Where a trial takes all of it the machine is gone: allocating goes on
past what there is instead of failing (github.com/pytorch/pytorch, issue 174358), and the driver's
own failure to allocate wedges the host without a word from the kernel's out-of-memory killer
(github.com/NVIDIA/open-gpu-kernel-modules, issue 1358). So there are two lines of defence, both
drawn from what is available at that moment, which counts whoever else is there, a model server
above all:

* torch's allocator refuses what would leave less than the reserve
  (:func:`trainer.machine.device.cap_memory`);
* the supervisor ends the trial where less than half of the reserve is left all the same: the other
  half is for what the allocator does not see, contexts, workspaces, the process itself.

Available is the kernel's MemAvailable. CUDA's own figure of what is free leaves out what the page
cache would give back (github.com/ollama/ollama, issue 12283).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autoresearch.errors import MachineryError

MEMINFO = Path("/proc/meminfo")
LEAST_GIB = 1.0
"""With less than this there is no trial to speak of."""
_KIB_PER_GIB = 1 << 20


def available_gib(meminfo: Path = MEMINFO) -> float:
    """What the machine could give to new work without swapping.

    :raises MachineryError: where the kernel does not say.
    """
    try:
        lines = meminfo.read_text("ascii").splitlines()
        found = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(found.split()[1]) / _KIB_PER_GIB
    except (OSError, StopIteration, ValueError, IndexError) as error:
        raise MachineryError(
            f"{meminfo} does not say how much memory is available; without that, trials on a GPU"
            " that shares it would endanger the machine"
        ) from error


def unified_limit_gib(left_gib: float, reserve_gib: float) -> float:
    """What a trial may take where ``left_gib`` are available and ``reserve_gib`` are kept.

    :raises MachineryError: where that is nothing.
    """
    limit_gib = left_gib - reserve_gib
    if limit_gib < LEAST_GIB:
        raise MachineryError(
            f"{left_gib:.1f} GiB of memory are available and {reserve_gib:g} GiB of it are kept for"
            " the rest of the machine, which leaves no room for a trial; stop what else uses it, or"
            " set AUTORESEARCH_MEMORY_RESERVE_GIB lower"
        )
    return limit_gib


@dataclass(frozen=True, slots=True)
class HostWatch:
    """Looks after the machine while a trial runs on a GPU that shares its memory."""

    reserve_gib: float
    meminfo: Path = MEMINFO

    def shortage(self) -> str | None:
        """Why the trial must end now, if it must."""
        floor_gib = self.reserve_gib / 2
        left_gib = available_gib(self.meminfo)
        if left_gib >= floor_gib:
            return None
        return (
            f"the machine had {left_gib:.2f} GiB of memory left, under the {floor_gib:g} GiB that"
            " are half of what is kept for it"
        )
