"""Find a trial's device by name, and read its own name and its memory."""

import resource
import sys

import torch

from autoresearch.errors import MachineryError
from trainer.machine import cuda_driver
from trainer.machine.host import available_gib, cpu_name, unified_limit_gib

_GIB = 1 << 30


def find_device(name: str) -> torch.device:
    """Return the device of this name.

    :raises MachineryError: if it does not exist.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise MachineryError(
            f"there is no device called {name!r}; use cpu, cuda or cuda:N"
        ) from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            if cuda_driver.is_installed():
                cuda_driver.start(name)  # it reports the fault
            raise MachineryError(
                f"torch {torch.__version__} sees no CUDA device where the spec wants"
                f" {name}; set device to cpu or run `autoresearch doctor`"
            )
        if (device.index or 0) >= torch.cuda.device_count():
            raise MachineryError(
                f"there is no {name}: torch sees {torch.cuda.device_count()} CUDA"
                " device(s); choose one of them"
            )
    elif device.type != "cpu":
        raise MachineryError(f"device {name} is not supported; use cpu, cuda or cuda:N")
    return device


def cap_memory(device: torch.device, reserve_gib: float) -> None:
    """Limit torch's allocator to what is available now minus ``reserve_gib``, on a GPU that shares
    the machine's memory.

    A GPU with memory of its own needs no limit.

    :raises MachineryError: if that leaves nothing to train in, or the limit cannot be set.
    """
    properties = torch.cuda.get_device_properties(device)
    if getattr(properties, "is_integrated", False):
        limit_gib = unified_limit_gib(available_gib(), reserve_gib)
        fraction = min(1.0, limit_gib * _GIB / properties.total_memory)
        try:
            torch.cuda.set_per_process_memory_fraction(fraction, device)
        except RuntimeError as error:
            # cudaMemGetInfo counts the page cache as used, and fails once that fills the memory.
            raise MachineryError(
                f"torch cannot set its memory limit of {limit_gib:.0f} GiB "
                f"({next(iter(str(error).splitlines()), 'no reason given')}); "
                "free the page cache with `sync; echo 3 | sudo tee /proc/sys/vm/drop_caches`, and "
                "update DGX OS if that does not help"
            ) from error


def peak_mem_gib(device: torch.device) -> float:
    """Return peak memory: allocated on CUDA, resident on CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device)) / _GIB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / _GIB


def peak_reserved_gib(device: torch.device) -> float | None:
    """Return the most memory that the caching allocator held; None on CPU."""
    if device.type != "cuda":
        return None
    return int(torch.cuda.max_memory_reserved(device)) / _GIB


def device_name(device: torch.device) -> str:
    """Return the device's own name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_name()
