"""Starting CUDA: the driver by its own library, and torch on top of it where torch is loaded.

torch says of every failure of the driver that there is no device. So the driver is started first
and by itself, through ctypes, and its return code is kept.
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
    """CUDA does not start: a call of the driver failed with ``code``; None: there is no driver."""

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class StartedDevice:
    """A device on which CUDA runs in this process now."""

    is_unified: bool
    """Whether its memory is the machine's own."""


def is_installed() -> bool:
    """Whether there is a driver library to start; starts nothing."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def start(device: str) -> StartedDevice:
    """Start CUDA in this process for ``cuda`` or ``cuda:N``.

    The driver; and where torch has been imported its context and one product, checked.

    :raises DriverFailed: with the code and what mends it.
    :raises MachineryError: where the driver starts and torch does not.
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
    import torch  # noqa: PLC0415 (loaded already; a trial without it need not wait for it)

    if torch.version.cuda is None:
        raise MachineryError(
            f"the CUDA driver starts, but torch {torch.__version__} {WITHOUT_CUDA}; install one"
            " that is built for this driver's CUDA"
        )
    try:
        ones = torch.ones(_SIZE, _SIZE, device=device)
        total = float((ones @ ones).sum().item())
    except (RuntimeError, AssertionError) as error:  # torch's words for no context, no room
        raise MachineryError(
            f"the CUDA driver starts, but torch {torch.__version__} does not on {device}"
            f" ({str(error).splitlines()[0]}); install a torch built for this driver's CUDA, and"
            " see with nvidia-smi who else holds the GPU"
        ) from error
    if total != _SIZE**3:
        raise MachineryError(
            f"{device} multiplies wrongly ({total:g} where {_SIZE**3} is right); restart the"
            " machine, and have the GPU looked at if that does not mend it"
        )
