"""Decide which errors mean that memory ran out: a result, unlike other errors, which are crashes.

torch has a type for refusals of its own CUDA allocator. Everything else that allocates (cuBLAS and
cuDNN for their handles, NCCL, Triton when it loads a kernel, the driver when it makes a context,
the CPU's allocator, the kernel when a file is mapped) raises a RuntimeError with a text. The texts
were collected from the issue trackers of PyTorch, NCCL and Triton.
"""

import errno
from collections.abc import Callable

import torch

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
