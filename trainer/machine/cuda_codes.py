"""What the CUDA driver's return codes mean where CUDA does not start, and what mends each.

Names and numbers are those of CUresult in cuda.h; NVIDIA's documentation of it says in general
what each means, the sentences here what it comes from at start-up.
"""

from __future__ import annotations

from collections.abc import Mapping

SUCCESS = 0
NO_DEVICE = 100

_KNOWN: Mapping[int, tuple[str, str]] = {
    2: ("OUT_OF_MEMORY", "the GPU's memory is full; see with nvidia-smi who holds it"),
    3: (
        "NOT_INITIALIZED",
        "the process that trials are forked from had started CUDA; look for a plug-in or a"
        " sitecustomize that does, and take it out",
    ),
    34: (
        "STUB_LIBRARY",
        "the libcuda.so that is found is the toolkit's stub; take the directory named stubs out of"
        " LD_LIBRARY_PATH",
    ),
    46: (
        "DEVICE_UNAVAILABLE",
        "another process holds the GPU for itself; end it, or: sudo nvidia-smi -c DEFAULT",
    ),
    NO_DEVICE: (
        "NO_DEVICE",
        "the driver sees no GPU; see nvidia-smi and CUDA_VISIBLE_DEVICES, and start a container"
        " with --gpus all",
    ),
    101: (
        "INVALID_DEVICE",
        "CUDA_VISIBLE_DEVICES or the device's number names no GPU of this machine; correct it",
    ),
    214: ("ECC_UNCORRECTABLE", "the GPU's memory has an error; restart the machine"),
    304: (
        "OPERATING_SYSTEM",
        "the system refused the driver something; where CUDA starts outside the sandbox, report it"
        " with the driver's version, for then the sandbox lacks a rule",
    ),
    802: (
        "SYSTEM_NOT_READY",
        "the driver waits for a service; start nvidia-fabricmanager, or wait until it is up",
    ),
    803: (
        "SYSTEM_DRIVER_MISMATCH",
        "libcuda and the kernel's driver are of different versions; restart the machine, as after"
        " any update of the driver",
    ),
    804: (
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "this CUDA is newer than the driver can serve; update the driver or take an older image",
    ),
    999: (
        "UNKNOWN",
        "load the driver's modules anew (sudo nvidia-modprobe -u -c=0, or restart the machine)",
    ),
}

_ELSE = "see NVIDIA's list of CUresult, and whether nvidia-smi answers"

CRASHED = (
    "the driver library itself broke, whatever was to be trained; update the driver, or report it"
    " with the driver's version"
)
"""What to do after a crash inside the driver, SIGSEGV above all: seen in another sandbox on DGX OS
7.5 with driver 595.58 (github.com/NVIDIA/OpenShell, issue 2343)."""


def explain_code(code: int) -> str:
    """``304 (CUDA_ERROR_OPERATING_SYSTEM): the system refused …``"""
    name, mend = _KNOWN.get(code, ("", _ELSE))
    return f"{code} (CUDA_ERROR_{name}): {mend}" if name else f"{code}: {mend}"
