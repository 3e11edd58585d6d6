"""Start CUDA: the driver by its own library, then torch if it is loaded.

torch reports every failure of the driver as a missing device. So the driver is started first
through ctypes, and its return code is kept and explained. The codes' names and numbers are those of
CUresult in cuda.h. NVIDIA documents their general meaning; the sentences here say what causes them
at start-up.
"""

import ctypes
import os
import sys
from collections.abc import Mapping

from autoresearch.errors import MachineryError

LIBRARY = "libcuda.so.1"
WITHOUT_CUDA = "is a build without CUDA"
_INTEGRATED = 18
"""CU_DEVICE_ATTRIBUTE_INTEGRATED of cuda.h."""
_NOT_INITIALIZED = 3
"""CUDA_ERROR_NOT_INITIALIZED."""
_SIZE = 64


class DriverFailed(MachineryError):
    """CUDA does not start: a driver call failed with ``code``, or there is no driver (None)."""

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(message)
        self.code = code


def is_installed() -> bool:
    """Return whether a driver library is installed, without starting it."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def is_started() -> bool:
    """Return whether this process has started the driver, without starting it."""
    try:
        library = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD)
    except OSError:  # nothing has loaded it
        return False
    return bool(library.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())) != _NOT_INITIALIZED)


def start(device: str) -> bool:
    """Start CUDA in this process for ``cuda`` or ``cuda:N``; return whether the device's memory is
    the machine's own.

    This starts the driver and, if torch has been imported, its context, and checks one product.

    :raises DriverFailed: with the code and its fix.
    :raises MachineryError: if the driver starts and torch does not.
    """
    ordinal = int(device.partition(":")[2] or 0)
    library, gpus = start_driver()
    if gpus == 0:
        raise _failed("cuDeviceGetCount", NO_DEVICE)
    handle, integrated = ctypes.c_int(), ctypes.c_int()
    _call(library, "cuDeviceGet", ctypes.byref(handle), ordinal)
    _call(library, "cuDeviceGetAttribute", ctypes.byref(integrated), _INTEGRATED, handle)
    if "torch" in sys.modules:
        _start_torch(device)
    return bool(integrated.value)


def start_driver() -> tuple[ctypes.CDLL, int]:
    """Start the driver alone; return its library and the number of GPUs visible to this process.

    :raises DriverFailed: with the code and its fix.
    """
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DriverFailed(
            f"CUDA cannot start: {LIBRARY} does not load ({error}); install NVIDIA's driver, and"
            " start a container with --gpus all",
            None,
        ) from error
    count = ctypes.c_int()
    _call(library, "cuInit", 0)
    _call(library, "cuDeviceGetCount", ctypes.byref(count))
    return library, count.value


def _call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = int(getattr(library, name)(*arguments))
    if code != SUCCESS:
        raise _failed(name, code)


def _failed(call: str, code: int) -> DriverFailed:
    return DriverFailed(f"CUDA does not start: {call} returned {explain_code(code)}", code)


def _start_torch(device: str) -> None:
    import torch  # noqa: PLC0415 (loaded already; trials without it need not wait)

    if torch.version.cuda is None:
        raise MachineryError(
            f"the CUDA driver starts, but torch {torch.__version__} {WITHOUT_CUDA}; install one"
            " that is built for this driver's CUDA"
        )
    try:
        ones = torch.ones(_SIZE, _SIZE, device=device)
        total = float((ones @ ones).sum().item())
    # torch raises these without a context or memory
    except (RuntimeError, AssertionError) as error:
        raise MachineryError(
            f"the CUDA driver starts, but torch {torch.__version__} does not on {device}"
            f" ({str(error).splitlines()[0]}); install a torch built for this driver's CUDA, and"
            " check with nvidia-smi which other processes hold the GPU"
        ) from error
    if total != _SIZE**3:
        raise MachineryError(
            f"{device} computes a wrong product ({total:g} instead of {_SIZE**3}); restart the"
            " machine, and have the GPU checked if that does not fix it"
        )


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
