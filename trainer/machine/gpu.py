"""What must be known of a GPU before any trial, asked in a process of its own.

Even its size or its compute capability is not to be had from torch without starting CUDA in the
process that asks; and who asks here, the agent, lives for a night beside the trials.

``python -m trainer.machine.gpu DEVICE`` is that process. Importing this module imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from autoresearch.errors import SpecError
from autoresearch.values import Frozen, NonNegative, NonNegativeInt, Positive
from trainer.machine.throwaway_process import NoAnswer, ask

PATIENCE_S = 120.0
"""Importing torch from a cold disk and starting CUDA take tens of seconds at worst."""


class GpuMemory(Frozen):
    """What a GPU has."""

    gib: Positive
    is_unified: bool
    """Whether it is the machine's own."""
    free_gib: NonNegative | None = None
    """What a new process could allocate, by CUDA's word; not asked of a unified machine, where it
    leaves out what the page cache would give back, and where asking may fail."""


def gpu_memory(device: str) -> GpuMemory:
    """The memory of ``cuda`` or ``cuda:N``.

    :raises SpecError: where there is no such device.
    """
    try:
        return ask(GpuMemory, "trainer.machine.gpu", device, patience_s=PATIENCE_S)
    except NoAnswer as why:
        raise SpecError(
            f"the memory of {device} cannot be read ({why}); see: autoresearch doctor"
        ) from why


class GpuCount(Frozen):
    """How many GPUs CUDA has for a process."""

    count: NonNegativeInt


def gpu_count() -> int:
    """GPUs that a process of this environment sees; 0 where that cannot be told."""
    try:
        return ask(GpuCount, "trainer.machine.gpu", patience_s=PATIENCE_S).count
    except NoAnswer:
        return 0


# --- in the process of its own -----------------------------------------------------------------


def _memory(device: str) -> GpuMemory:
    import torch  # noqa: PLC0415 (whoever asks needs the types alone)

    properties = torch.cuda.get_device_properties(device)
    is_unified = bool(getattr(properties, "is_integrated", False))
    free_bytes = None if is_unified else torch.cuda.mem_get_info(device)[0]
    return GpuMemory(
        gib=properties.total_memory / (1 << 30),
        is_unified=is_unified,
        free_gib=None if free_bytes is None else free_bytes / (1 << 30),
    )


def _count() -> GpuCount:
    import torch  # noqa: PLC0415 (as above)

    return GpuCount(count=torch.cuda.device_count())


def main(arguments: Sequence[str]) -> int:
    """Print the memory of the device that is named, as JSON; without a name how many there are."""
    try:
        answer: GpuMemory | GpuCount = _memory(*arguments) if arguments else _count()
    except (RuntimeError, AssertionError, ValueError) as error:  # torch's words for no such device
        sys.stderr.write(f"{str(error).splitlines()[0]}\n")
        return 1
    sys.stdout.write(answer.model_dump_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
