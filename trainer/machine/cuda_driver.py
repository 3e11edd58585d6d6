"""Start CUDA: the driver by its own library, then torch if it is loaded.

torch reports every failure of the driver as a missing device. So the driver is started first
through ctypes, and its return code is kept.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass

from autoresearch.errors import MachineryError
from trainer.machine.cuda_codes import NO_DEVICE, SUCCESS, explain_code

LIBRARY = "libcuda.so.1"
WITHOUT_CUDA = "is a build without CUDA"
_INTEGRATED = 18
"""CU_DEVICE_ATTRIBUTE_INTEGRATED of cuda.h."""
_SIZE = 64


class DriverFailed(MachineryError):
    """CUDA does not start: a driver call failed with ``code``, or there is no driver (None)."""

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class StartedDevice:
    """A device on which CUDA now runs in this process."""

    is_unified: bool
    """Whether its memory is the machine's own."""


def is_installed() -> bool:
    """Return whether a driver library is installed, without starting it."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def start(device: str) -> StartedDevice:
    """Start CUDA in this process for ``cuda`` or ``cuda:N``.

    This starts the driver and, if torch has been imported, its context, and checks one product.

    :raises DriverFailed: with the code and its fix.
    :raises MachineryError: if the driver starts and torch does not.
    """
    started = _start_driver(_ordinal(device))
    if "torch" in sys.modules:
        _start_torch(device)
    return started


def _ordinal(device: str) -> int:
    _, _, number = device.partition(":")
    return int(number or 0)


def _start_driver(ordinal: int) -> StartedDevice:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DriverFailed(
            f"CUDA cannot start: {LIBRARY} does not load ({error}); install NVIDIA's driver, and"
            " start a container with --gpus all",
            None,
        ) from error
    _call(library, "cuInit", 0)
    handle, integrated = ctypes.c_int(), ctypes.c_int()
    count = ctypes.c_int()
    _call(library, "cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        raise _failed("cuDeviceGetCount", NO_DEVICE)
    _call(library, "cuDeviceGet", ctypes.byref(handle), ordinal)
    _call(library, "cuDeviceGetAttribute", ctypes.byref(integrated), _INTEGRATED, handle)
    return StartedDevice(is_unified=bool(integrated.value))


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
