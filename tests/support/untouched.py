"""Watch that no program opens, reads or changes some files, by whatever name it reaches them."""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_EVENT = struct.Struct("iIII")
IN_ACCESS = 0x1
_EVENTS = 0x7FF
"""Reads, writes, opens, names that come and go, and attributes. Not IN_MOVE_SELF: a campaign may
rename its own hard link of a file."""


class Untouched:
    """Files and folders that the kernel reports every use of, besides a look at their attributes.

    It watches inodes, so that a link, a hard link or another mount of a file hides nothing.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0, os.strerror(ctypes.get_errno())
        self._watched: dict[int, Path] = {}
        for path in paths:
            number = _libc.inotify_add_watch(self._descriptor, os.fsencode(path), _EVENTS)
            assert number >= 0, os.strerror(ctypes.get_errno())
            self._watched[number] = path

    def touched(self) -> list[str]:
        """Return each use since the last call: which file, and the bits of inotify(7)."""
        found = []
        try:
            while data := os.read(self._descriptor, 1 << 16):
                while data:
                    number, mask, _, length = _EVENT.unpack_from(data)
                    name = data[_EVENT.size : _EVENT.size + length].rstrip(b"\0").decode()
                    found.append(f"{self._watched[number] / name} {mask:#x}")
                    data = data[_EVENT.size + length :]
        except BlockingIOError:
            return found
        return found

    def close(self) -> None:
        os.close(self._descriptor)
