"""What must be known of a GPU before any trial, asked in a process of its own.

Even its size or its compute capability is not to be had from torch without starting CUDA in the
process that asks; and who asks here, the agent, lives for a night beside the trials.

``python -m trainer.gpu memory DEVICE`` and ``python -m trainer.gpu check CONFIG BACKEND DEVICE
COMPILE`` are that process. Importing this module imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal, cast

from trainer.errors import AutoresearchError, MachineryError, SpecError
from trainer.own_process import NoAnswer, ask
from trainer.spec import BackendName, Config, Frozen, NonNegative, Positive

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


class Verdict(Frozen):
    """Whether a config can be trained."""

    refusal: str | None = None
    """Why not, in a sentence."""
    at_fault: Literal["spec", "machinery"] = "spec"


def gpu_memory(device: str) -> GpuMemory:
    """The memory of ``cuda`` or ``cuda:N``.

    :raises SpecError: where there is no such device.
    """
    try:
        return ask(GpuMemory, "trainer.gpu", "memory", device, patience_s=PATIENCE_S)
    except NoAnswer as why:
        raise SpecError(
            f"the memory of {device} cannot be read ({why}); see: autoresearch doctor"
        ) from why


def check_elsewhere(config: Config, backend: BackendName, device: str, *, compile: bool) -> None:
    """:func:`trainer.child.check_here`, in a process of its own.

    :raises MachineryError: as there, and where there is no answer.
    :raises SpecError: as there.
    """
    question = (config.model_dump_json(), backend, device, "compile" if compile else "eager")
    try:
        verdict = ask(Verdict, "trainer.gpu", "check", *question, patience_s=PATIENCE_S)
    except NoAnswer as why:
        raise MachineryError(
            f"whether {backend} can train on {device} cannot be found out ({why});"
            " see: autoresearch doctor"
        ) from why
    if verdict.refusal is not None:
        error = SpecError if verdict.at_fault == "spec" else MachineryError
        raise error(verdict.refusal)


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


def _verdict(config: str, backend: str, device: str, compile: str) -> Verdict:
    from trainer.child import check_here  # noqa: PLC0415 (torch)

    name = cast(BackendName, backend)
    try:
        check_here(Config.model_validate_json(config), name, device, compile=compile == "compile")
    except SpecError as error:
        return Verdict(refusal=str(error))
    except AutoresearchError as error:
        return Verdict(refusal=str(error), at_fault="machinery")
    return Verdict()


def main(arguments: Sequence[str]) -> int:
    """Print the answer to a question as JSON."""
    question, *about = arguments
    try:
        answer = _memory(*about) if question == "memory" else _verdict(*about)
    except (RuntimeError, AssertionError, ValueError) as error:  # torch's words for no such device
        sys.stderr.write(f"{str(error).splitlines()[0]}\n")
        return 1
    sys.stdout.write(answer.model_dump_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
