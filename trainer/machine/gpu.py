"""Read facts about a GPU before any trial, in a short-lived process."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from autoresearch.code import module_command, package_root
from autoresearch.errors import AutoresearchError, SpecError
from autoresearch.values import Frozen, NonNegative, NonNegativeInt, Positive
from trainer.machine import cuda_driver
from trainer.machine.environment import allowed_environment

_Answer = TypeVar("_Answer", bound=BaseModel)


class NoAnswer(Exception):
    """The process gave no answer; the message is its last line, or how it ended."""


def ask(answer: type[_Answer], module: str, *arguments: str, patience_s: float) -> _Answer:
    """Return what ``python -m module arguments…`` prints, parsed as an ``answer`` in JSON.

    :raises NoAnswer: if it prints anything else, or takes longer.
    """
    try:
        ended = subprocess.run(
            module_command(module, *arguments),
            env=allowed_environment(),
            cwd=package_root(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"no answer within {patience_s:g} s") from error
    except OSError as error:
        raise NoAnswer(f"{sys.executable} cannot be started: {error.strerror}") from error
    try:
        return answer.model_validate_json(ended.stdout)
    except ValidationError as error:
        said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise NoAnswer(said[-1][:300]) from error


def reply(answer: Callable[[], BaseModel]) -> int:
    """Print what ``answer`` returns as JSON, or in one line why it fails; return the exit code.

    torch raises RuntimeError, AssertionError and ValueError without the device or memory.
    """
    try:
        text = answer().model_dump_json()
    except (AutoresearchError, RuntimeError, AssertionError, ValueError) as error:
        sys.stderr.write(f"{str(error).splitlines()[0]}\n")
        return 1
    sys.stdout.write(text + "\n")
    return 0


PATIENCE_S = 120.0
"""Timeout in seconds; importing torch from a cold disk and starting CUDA take tens of seconds at
worst."""


class GpuMemory(Frozen):
    """Memory of a GPU."""

    gib: Positive
    is_unified: bool
    """Whether it is the machine's own memory."""
    free_gib: NonNegative | None = None
    """Memory that a new process could allocate, according to CUDA. Unknown on a unified machine,
    where CUDA omits the reclaimable page cache and the query may fail."""


def gpu_memory(device: str) -> GpuMemory:
    """Return the memory of ``cuda`` or ``cuda:N``.

    :raises SpecError: if there is no such device.
    """
    try:
        return ask(GpuMemory, "trainer.machine.gpu", device, patience_s=PATIENCE_S)
    except NoAnswer as why:
        raise SpecError(
            f"the memory of {device} cannot be read ({why}); run: autoresearch doctor"
        ) from why


class GpuCount(Frozen):
    """Number of GPUs that CUDA has for a process."""

    count: NonNegativeInt


def gpu_count() -> int:
    """Return the number of GPUs visible in this environment; 0 if unknown."""
    try:
        return ask(GpuCount, "trainer.machine.gpu", patience_s=PATIENCE_S).count
    except NoAnswer:
        return 0


# --- in a process of its own ---------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """Print the memory of the given device as JSON, or without a device the number of GPUs."""

    def answer() -> GpuMemory | GpuCount:
        if not arguments:
            return GpuCount(count=cuda_driver.start_driver()[1])
        import torch  # noqa: PLC0415 (the caller needs only the types)

        (device,) = arguments
        properties = torch.cuda.get_device_properties(device)
        is_unified = bool(getattr(properties, "is_integrated", False))
        free_bytes = None if is_unified else torch.cuda.mem_get_info(device)[0]
        return GpuMemory(
            gib=properties.total_memory / (1 << 30),
            is_unified=is_unified,
            free_gib=None if free_bytes is None else free_bytes / (1 << 30),
        )

    return reply(answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
