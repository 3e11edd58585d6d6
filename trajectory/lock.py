"""Ensure that only one process writes a campaign."""

import errno
import fcntl
import os
import socket
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from pydantic import ValidationError

from autoresearch.campaign_files import open_file
from autoresearch.errors import CampaignLockedError, MachineryError
from autoresearch.layout import LOCK_FILE
from autoresearch.safe_text import redact
from autoresearch.values import Frozen


class Holder(Frozen):
    """The process that holds a lock, as it described itself."""

    pid: int
    host: str
    started: str
    """Start time, ISO 8601, UTC."""
    command: str


class CampaignLock:
    """``campaign.lock`` in the campaign's directory, held with flock(2).

    The kernel releases the lock when its holder dies, for any reason. The file's text is then stale
    and harmless, because only the lock counts. A holder that ends by itself empties the file. The
    descriptor is closed on exec, so trials do not inherit it; a process forked without exec would.
    On NFS, Linux turns flock into a server-side lock. Other machines respect it unless the share is
    mounted with ``nolock`` or ``local_lock``.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock without waiting.

        :raises CampaignLockedError: if another process holds it; the error names the process.
        :raises MachineryError: if the directory cannot be written or locked.
        """
        path = self._directory / LOCK_FILE
        try:
            descriptor = open_file(self._directory, LOCK_FILE, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise MachineryError(
                f"cannot open {path} ({error.strerror}); "
                "make the campaign's directory exist and be writable, and the lock a plain file"
            ) from error
        try:
            _lock(descriptor)
            holder = Holder(
                pid=os.getpid(),
                host=socket.gethostname(),
                started=datetime.now(UTC).isoformat(timespec="seconds"),
                command=redact(" ".join(sys.argv).encode("utf-8", "replace").decode())[:500],
            )
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.model_dump_json().encode(), 0)
        except OSError as error:
            other = _read_holder(descriptor)
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                who = "another process, which is only just starting"
                if other is not None:
                    command = other.command or "no command line"
                    who = f"process {other.pid} on {other.host} since {other.started} ({command})"
                raise CampaignLockedError(
                    f"campaign {self._directory} is being written by {who}; wait for it to end or "
                    "stop it"
                ) from error
            raise MachineryError(
                f"cannot lock {path} ({error.strerror}); "
                "keep the campaign on a file system that supports flock and has space left"
            ) from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock; harmless if it is not held."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


LockState: TypeAlias = Literal["held", "free", "abandoned"]
"""``abandoned``: its holder was killed, or lost its power."""


def lock_state(directory: Path) -> LockState:
    """Return whether a process writes the campaign now, without keeping any from doing so."""
    try:
        descriptor = open_file(directory, LOCK_FILE)
    except OSError:  # never written, or no file that a loop would lock
        return "free"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return "held"
    else:
        return "free" if _read_holder(descriptor) is None else "abandoned"
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Take the lock. :func:`lock_state` may hold it for an instant, so try more than once."""
    for _ in range(3):
        with suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.02)
    return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read_holder(descriptor: int) -> Holder | None:
    try:
        return Holder.model_validate_json(os.pread(descriptor, 65536, 0))
    except (OSError, ValidationError):
        return None
