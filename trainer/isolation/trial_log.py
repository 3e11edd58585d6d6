"""Bound a trial's log while it is written."""

from __future__ import annotations

import os
from pathlib import Path

from autoresearch.plain_text import plain
from trainer.isolation.kernel.libc import punch_hole

_BLOCK_BYTES = 1 << 16
"""Larger than any file system's rounding."""


class TrialLog:
    """A new trainer.log, held open so that it is never found through its name again."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        # With O_EXCL it is new: no link and no pipe that a trial put there before.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o644)
        self._limit_bytes = limit_bytes

    def trim(self) -> None:
        """Free the middle of a log that has outgrown the limit, while it is written.

        This punches a hole, since nothing that is appended meanwhile can fall into it.
        """
        status = os.fstat(self._fd)
        if status.st_blocks * 512 <= self._limit_bytes + _BLOCK_BYTES:
            return
        head_bytes, tail_bytes = self._limit_bytes // 4, self._limit_bytes // 2
        if not punch_hole(self._fd, head_bytes, status.st_size - tail_bytes - head_bytes):
            self.compact()  # loses what is appended at that moment

    def compact(self) -> None:
        """Remove the middle of a log that has outgrown the limit, keeping both ends."""
        size = os.fstat(self._fd).st_size
        if size <= self._limit_bytes:
            return
        head_bytes, tail_bytes = self._limit_bytes // 4, self._limit_bytes // 2
        tail = os.pread(self._fd, tail_bytes, size - tail_bytes)
        note = f"\n[... cut here: the log passed its limit of {self._limit_bytes} bytes ...]\n"
        kept = note.encode() + tail
        os.pwrite(self._fd, kept, head_bytes)
        os.ftruncate(self._fd, head_bytes + len(kept))

    def last_line(self) -> str:
        """Return the last nonblank line, printable and at most 500 characters; empty if none."""
        size = os.fstat(self._fd).st_size
        tail = os.pread(self._fd, 8192, max(0, size - 8192)).decode(errors="replace")
        for line in reversed(tail.splitlines()):
            shown = plain(line).strip()
            if shown:
                return shown[:500]
        return ""

    def close(self) -> None:
        os.close(self._fd)
