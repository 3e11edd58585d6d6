"""Drop root's privileges one by one: capabilities(7)."""

from __future__ import annotations

import ctypes

from trainer.isolation.kernel.libc import check, libc


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


_CAPABILITY_VERSION_3 = 0x20080522
_KEPT_CAPABILITIES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def drop_capabilities(keep: int = _KEPT_CAPABILITIES) -> None:
    """Keep only the capabilities for reading a user's files (Landlock limits which), or those in
    ``keep``.

    :raises OSError: if the kernel refuses.
    """
    header, data = _CapHeader(_CAPABILITY_VERSION_3, 0), (_CapData * 2)()
    check(libc().capget(ctypes.byref(header), data), "capget")
    kept = data[0].permitted & keep
    data[0].effective = data[0].permitted = kept
    data[1].effective = data[1].permitted = 0
    data[0].inheritable = data[1].inheritable = 0
    check(libc().capset(ctypes.byref(header), data), "capset")
