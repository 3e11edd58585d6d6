"""Read facts about this machine without torch: its memory, its processor, its compilers.

A trial must not take all memory of a machine that shares it with its GPU. A GB10 has one pool for
both. If a trial takes all of it the machine hangs. Allocation continues past the limit instead of
failing (github.com/pytorch/pytorch, issue 174358). The driver's own failure to allocate wedges the
host without a message from the kernel's out-of-memory killer
(github.com/NVIDIA/open-gpu-kernel-modules, issue 1358). So there are two lines of defense, both
based on the memory available at that moment, which counts other users such as a model server:

* torch's allocator refuses what would leave less than the reserve
(:func:`trainer.machine.device.cap_memory`);

* the supervisor ends the trial if less than half of the reserve is left: the other half covers what
the allocator does not see, contexts, workspaces, the process itself.

"Available" is the kernel's MemAvailable. CUDA's own figure of free memory omits the reclaimable
page cache (github.com/ollama/ollama, issue 12283).
"""

import platform
import shutil
import sysconfig
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from autoresearch.errors import MachineryError
from autoresearch.program import install_command

MEMINFO = Path("/proc/meminfo")
LEAST_GIB = 1.0
"""Least memory that makes a trial worthwhile."""
_KIB_PER_GIB = 1 << 20


def available_gib(meminfo: Path = MEMINFO) -> float:
    """Return the memory that the machine could give to new work without swapping.

    :raises MachineryError: if the kernel does not report it.
    """
    return memory_gib("MemAvailable", meminfo)


def memory_gib(field: str, meminfo: Path = MEMINFO) -> float:
    """Return one of the kernel's figures of the machine's memory.

    :raises MachineryError: if the kernel does not report it.
    """
    try:
        lines = meminfo.read_text("ascii").splitlines()
        found = next(line for line in lines if line.startswith(f"{field}:"))
        return int(found.split()[1]) / _KIB_PER_GIB
    except (OSError, StopIteration, ValueError, IndexError) as error:
        raise MachineryError(
            f"{meminfo} does not report the available memory; without it, trials on a GPU"
            " that shares it would endanger the machine"
        ) from error


def unified_limit_gib(left_gib: float, reserve_gib: float) -> float:
    """Return the memory that a trial may take if ``left_gib`` are available and ``reserve_gib`` are
    kept.

    :raises MachineryError: if that is nothing.
    """
    limit_gib = left_gib - reserve_gib
    if limit_gib < LEAST_GIB:
        raise MachineryError(
            f"{left_gib:.1f} GiB of memory are available and {reserve_gib:g} GiB of it are kept for"
            " the rest of the machine, which leaves too little for a trial; stop other programs, or"
            " set AUTORESEARCH_MEMORY_RESERVE_GIB lower"
        )
    return limit_gib


def shortage(reserve_gib: float, meminfo: Path = MEMINFO) -> str | None:
    """Return why a trial on a GPU that shares the machine's memory must end now, or None."""
    floor_gib = reserve_gib / 2
    left_gib = available_gib(meminfo)
    if left_gib >= floor_gib:
        return None
    return (
        f"the machine had {left_gib:.2f} GiB of memory left, under the {floor_gib:g} GiB that"
        " are half of its reserve"
    )


def cpu_name() -> str:
    """Return the processor's own name; on most non-x86 machines only the architecture."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "cpu"


def require_torch() -> None:
    """
    :raises MachineryError: if torch, which the built-in trainer needs, is not installed.
    """
    if find_spec("torch") is None:
        raise MachineryError(
            "the built-in trainer needs torch, which is not installed (a --menu with a command of"
            f" your own needs none); run: {install_command('train')}"
        )


def lacking() -> str | None:
    """Return what compiling kernels for a GPU lacks here; None if nothing is missing.

    Triton compiles its launchers with a C compiler against Python's headers. This checks the
    compiler names that it uses by default, since a trial's environment has no CC.
    """
    if find_spec("triton") is None:
        return "Triton"
    if not any(shutil.which(name) for name in ("gcc", "clang")):
        return "a compiler (gcc or clang)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's headers (python3-dev)"
    return None
