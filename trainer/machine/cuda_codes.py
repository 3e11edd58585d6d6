"""Explain the CUDA driver's return codes at start-up, and how to fix each.

Names and numbers are those of CUresult in cuda.h. NVIDIA documents their general meaning; the
sentences here say what causes them at start-up.
"""

from __future__ import annotations

from collections.abc import Mapping

SUCCESS = 0
NO_DEVICE = 100

_KNOWN: Mapping[int, tuple[str, str]] = {
    2: (
        "OUT_OF_MEMORY",
        "the GPU's memory is full; find out with nvidia-smi which process holds it",
    ),
    3: (
        "NOT_INITIALIZED",
        "the process that trials are forked from had started CUDA; find the plug-in or"
        " sitecustomize that does, and remove it",
    ),
    34: (
        "STUB_LIBRARY",
        "the libcuda.so found is the toolkit's stub; remove the directory named stubs from"
        " LD_LIBRARY_PATH",
    ),
    46: (
        "DEVICE_UNAVAILABLE",
        "another process has exclusive use of the GPU; end it, or run: sudo nvidia-smi -c DEFAULT",
    ),
    NO_DEVICE: (
        "NO_DEVICE",
        "the driver sees no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, and start a container"
        " with --gpus all",
    ),
    101: (
        "INVALID_DEVICE",
        "CUDA_VISIBLE_DEVICES or the device's number names no GPU of this machine; correct it",
    ),
    214: ("ECC_UNCORRECTABLE", "the GPU's memory has an error; restart the machine"),
    304: (
        "OPERATING_SYSTEM",
        "the system refused a request of the driver; if CUDA starts outside the sandbox, report it"
        " with the driver's version, since the sandbox then lacks a rule",
    ),
    802: (
        "SYSTEM_NOT_READY",
        "the driver waits for a service; start nvidia-fabricmanager, or wait until it is up",
    ),
    803: (
        "SYSTEM_DRIVER_MISMATCH",
        "libcuda and the kernel's driver have different versions; restart the machine, as after"
        " any update of the driver",
    ),
    804: (
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "this CUDA is newer than the driver can serve; update the driver or take an older image",
    ),
    999: (
        "UNKNOWN",
        "reload the driver's modules (sudo nvidia-modprobe -u -c=0, or restart the machine)",
    ),
}

_ELSE = "look it up in NVIDIA's list of CUresult, and check that nvidia-smi answers"

CRASHED = (
    "the driver library itself crashed, whatever the config; update the driver, or report it"
    " with the driver's version"
)
"""Advice after a crash inside the driver, mostly SIGSEGV: seen in another sandbox on DGX OS 7.5
with driver 595.58 (github.com/NVIDIA/OpenShell, issue 2343)."""


def explain_code(code: int) -> str:
    """Return ``304 (CUDA_ERROR_OPERATING_SYSTEM): the system refused …``."""
    name, fix = _KNOWN.get(code, ("", _ELSE))
    return f"{code} (CUDA_ERROR_{name}): {fix}" if name else f"{code}: {fix}"
