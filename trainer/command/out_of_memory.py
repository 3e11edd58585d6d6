"""Recognize printed lines that mean out of memory, and tell a GPU's memory from the host's."""

import re

OUT_OF_MEMORY = (
    "out of memory",
    "MemoryError",
    "can't allocate memory",
    "Cannot allocate memory",
    "std::bad_alloc",
    "RESOURCE_EXHAUSTED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "cudaErrorMemoryAllocation",
)
"""Messages of PyTorch, Python, NumPy, the C++ runtime, JAX and CUDA's libraries."""
_CPU_ALLOCATOR = re.compile(r"DefaultCPUAllocator|alloc_cpu")
_GPU = re.compile(r"(?i)cuda|cublas|cudnn|nccl|\bgpu\b|\bhip\b|OutOfMemoryError")
_HOST = re.compile(r"MemoryError\b|std::bad_alloc|an(?:'t|not) allocate memory")


def shortage(line: str, device: str) -> str:
    """Return which memory a line says was too small: ``out of GPU memory`` or ``out of host
    memory``, or ``out of memory`` if the line leaves it open.

    :param device: the trial's; on a CPU only a line that names a GPU is about one.
    """
    if _CPU_ALLOCATOR.search(line):
        return "out of host memory"
    if _GPU.search(line):
        return "out of GPU memory"
    if device == "cpu" or _HOST.search(line):
        return "out of host memory"
    # XLA gives this error for the device that it computes on.
    return "out of GPU memory" if "RESOURCE_EXHAUSTED" in line else "out of memory"
