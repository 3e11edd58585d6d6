"""Find a trial's device by name, read its own name and its memory, and tell that memory ran out.

Running out of memory is a result, unlike other errors, which are crashes. torch has a type for
refusals of its own CUDA allocator. Everything else that allocates (cuBLAS and cuDNN for their
handles, NCCL, Triton when it loads a kernel, the driver when it makes a context, the CPU's
allocator, the kernel when a file is mapped) raises a RuntimeError with a text. The texts were
collected from the issue trackers of PyTorch, NCCL and Triton.
"""

import errno
import resource
import sys
from collections.abc import Callable

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


# --- running out of memory -----------------------------------------------------------------------

_TEXTS = (
    # torch ("CUDA error", "CUDA driver error"), Triton ("Triton Error [CUDA]"), NCCL ("Cuda failure
    # 2"), TransformerEngine; but not Triton's "out of resource: shared memory", a kernel's fault
    "out of memory",
    "alloc_failed",  # CUBLAS_STATUS_, CUDNN_STATUS_, CUSOLVER_STATUS_
    "allocation_failed",  # CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ and _HOST_ of cuDNN 9
    # The allocator tries to report how full the device is, and NVML does not answer: MIG slices,
    # unified memory, a sandbox (pytorch/pytorch issues 112377 and 185240)
    "nvml_success == r internal assert failed",
    "can't allocate memory",  # c10's CPU allocator
    "not enough memory",  # the same on other platforms
    "cannot allocate memory",  # ENOMEM in words
    "std::bad_alloc",
    "could not create a memory object",  # oneDNN
)
_TEXTS_ON_A_FULL_DEVICE = (
    # The same error for a failed handle, whether memory or something else is short.
    "cublas_status_not_initialized",
    "cudnn_status_not_initialized",
)
_FULL_BYTES = 256 << 20
"""A device with less than this left is full: a handle and its workspace take some tens of MiB."""


def is_out_of_memory(error: BaseException, free_bytes: Callable[[], int | None]) -> bool:
    """Return whether ``error``, or its cause, is a failed allocation.

    ``free_bytes`` is called, if only that can decide, for the device's free memory; None: unknown.
    """
    cause: BaseException | None = error
    while cause is not None:
        if _is_failed_allocation(cause, free_bytes):
            return True
        cause = cause.__cause__
    return False


def free_device_bytes(device: torch.device) -> int | None:
    """Return a GPU's free memory; None without a GPU, or if it no longer answers."""
    if device.type != "cuda":
        return None
    try:
        return int(torch.cuda.mem_get_info(device)[0])
    except RuntimeError:  # for example after an illegal access every call fails
        return None


def _is_failed_allocation(error: BaseException, free_bytes: Callable[[], int | None]) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if not isinstance(error, RuntimeError):
        return False
    text = str(error).lower()
    if any(part in text for part in _TEXTS):
        return True
    if not any(part in text for part in _TEXTS_ON_A_FULL_DEVICE):
        return False
    left = free_bytes()
    return left is not None and left < _FULL_BYTES
