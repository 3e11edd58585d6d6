"""The files of a trial's directory, as seen by a supervisor that does not trust who wrote them.

    spec.json     written before the trial's process exists; what is believed of the trial later is
                  the copy of :mod:`trainer.sealed_spec`, which is on the disk by then
    trainer.log   what the trial printed, its middle cut out when it prints too much
    curve.jsonl   a CurvePoint a line, as training goes
    result.json   the TrialResult
    error.json    why nothing could be measured, which is not the config's fault
    tmp/          the trial's home and temporary files; gone afterwards

A trial may put links, pipes or gigabytes under these names. So nothing is opened through a link,
nothing blocks, and nothing is read without a bound.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from trainer import errors
from trainer.contradiction import contradiction
from trainer.errors import AutoresearchError, MachineryError
from trainer.libc import punch_hole
from trainer.sealed_spec import sealed_path
from trainer.spec import CurvePoint, Frozen, TrialFailed, TrialOk, TrialSpec, parse_result

SPEC_NAME = "spec.json"
LOG_NAME = "trainer.log"
CURVE_NAME = "curve.jsonl"
RESULT_NAME = "result.json"
ERROR_NAME = "error.json"
SCRATCH_NAME = "tmp"

ERROR_EXIT_CODE = 70
"""The trial's process wrote error.json (EX_SOFTWARE of sysexits.h)."""
NO_SPACE_EXIT_CODE = 74
"""The disk was full, so that it may have written nothing (EX_IOERR)."""

_SMALL_FILE_BYTES = 1 << 20
_CURVE_CHUNK_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 16
"""More than a file system may round up to."""
_NO_SURPRISES = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TrialError(Frozen):
    """An error of :mod:`trainer.errors` on its way from the trial's process to the supervisor."""

    kind: Literal["SpecError", "CorpusError", "SandboxError", "MachineryError"]
    message: str

    def as_exception(self) -> AutoresearchError:
        """The error, to be raised again."""
        exception: AutoresearchError = getattr(errors, self.kind)(self.message)
        return exception


def write_error(trial_dir: Path, error: AutoresearchError) -> None:
    """Leave ``error`` for the supervisor; no room for it is a message too, by its absence."""
    kinds = (errors.SpecError, errors.CorpusError, errors.SandboxError)
    kind = next((k.__name__ for k in kinds if isinstance(error, k)), "MachineryError")
    text = TrialError.model_validate({"kind": kind, "message": str(error)}).model_dump_json()
    with contextlib.suppress(OSError):
        (trial_dir / ERROR_NAME).write_text(text)


class TrialFiles:
    """A directory prepared for one trial, with its log open."""

    def __init__(self, spec: TrialSpec, trial_dir: Path) -> None:
        """Write the order, atomically and to the disk; clear away what an interrupted run left.

        :raises MachineryError: where the directory holds a result already or cannot be written.
        """
        self.path = trial_dir
        self._order = spec.model_dump_json().encode()
        try:
            trial_dir.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(trial_dir / RESULT_NAME):
                raise MachineryError(
                    f"the trial directory {trial_dir} already holds a result;"
                    " run the trial in a new directory"
                )
            for name in (SPEC_NAME, LOG_NAME, CURVE_NAME, ERROR_NAME, SCRATCH_NAME):
                _clear(trial_dir / name)
            self.log = TrialLog(trial_dir / LOG_NAME, spec.limits.log_bytes)
            sealed_path(trial_dir).parent.mkdir(exist_ok=True)
            _write_durably(sealed_path(trial_dir), self._order)
            write_atomically(trial_dir / SPEC_NAME, self._order, durable=False)
        except OSError as error:
            raise MachineryError(
                f"cannot prepare the trial directory {trial_dir} ({error.strerror});"
                " free some space there or choose another campaign directory"
            ) from error
        self.curve = CurveTail(trial_dir / CURVE_NAME)

    def read_result(self) -> bytes | None:
        """What the trial left as its result; None where that is no file of sensible size."""
        return _read_small(self.path / RESULT_NAME)

    def write_result(self, result: TrialFailed) -> None:
        """Put a result that the supervisor came to where the trial left none that is sound.

        :raises MachineryError: where the directory cannot be written.
        """
        try:
            _clear(self.path / RESULT_NAME)
            _write_durably(self.path / RESULT_NAME, result.model_dump_json(indent=2).encode())
        except OSError as error:
            raise MachineryError(
                f"cannot write the result of the trial in {self.path} ({error.strerror});"
                " free some space there and resume the campaign"
            ) from error

    def discard_result(self) -> None:
        """Remove what the trial left as its result, if anything; what resists stays."""
        with contextlib.suppress(OSError):
            _clear(self.path / RESULT_NAME)

    def tampering(self) -> str:
        """What the trial did to its own order; empty where that is as it was given."""
        same = _read_small(self.path / SPEC_NAME) == self._order
        return "" if same else f"the trial rewrote its own {SPEC_NAME}"

    def read_error(self) -> AutoresearchError | None:
        """The error the trial's process reported, if any."""
        data = _read_small(self.path / ERROR_NAME)
        try:
            return TrialError.model_validate_json(data or b"").as_exception()
        except ValidationError:
            return None

    def close(self) -> None:
        """Let go of the files and remove the trial's temporary ones."""
        self.curve.close()
        self.log.close()
        _clear(self.path / SCRATCH_NAME)


def finished_trial(trial_dir: Path) -> tuple[TrialSpec, TrialOk | TrialFailed] | None:
    """The spec and result of a trial that ended before now; None where it left no sound ones, or
    not of the order that it was given."""
    order = _read_small(sealed_path(trial_dir))
    if order is None or order != _read_small(trial_dir / SPEC_NAME):
        return None
    try:
        spec = TrialSpec.model_validate_json(order)
        result = parse_result(_read_small(trial_dir / RESULT_NAME) or b"")
    except ValidationError:
        return None
    return None if contradiction(spec, result) else (spec, result)


def wall_s(trial_dir: Path) -> float:
    """From a trial's spec to its result, by the file system's clock; 0 where one is missing."""
    try:
        began = (trial_dir / SPEC_NAME).lstat().st_mtime
        return max(0.0, (trial_dir / RESULT_NAME).lstat().st_mtime - began)
    except OSError:
        return 0.0


def read_curve(trial_dir: Path) -> list[CurvePoint]:
    """The learning curve a trial left; lines that are no point of one are skipped."""
    tail = CurveTail(trial_dir / CURVE_NAME)
    points: list[CurvePoint] = []
    try:
        while more := tail.read():
            points += more
    finally:
        tail.close()
    return points


class TrialLog:
    """trainer.log, created here and held open, so that it is never found through its name again."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_SURPRISES
        self._fd = os.open(path, flags, 0o644)
        self._limit_bytes = limit_bytes

    def trim(self) -> None:
        """While it is written: free the middle of what has outgrown the limit.

        A hole, because nothing that is appended meanwhile can fall into it.
        """
        status = os.fstat(self._fd)
        if status.st_blocks * 512 <= self._limit_bytes + _BLOCK_BYTES:
            return
        head_bytes, tail_bytes = self._limit_bytes // 4, self._limit_bytes // 2
        if not punch_hole(self._fd, head_bytes, status.st_size - tail_bytes - head_bytes):
            self.compact()  # loses what is appended at that moment

    def compact(self) -> None:
        """Cut out the middle of what has outgrown the limit: both ends tell the story."""
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
        """The last line that is not blank, printable and at most 500 characters; or nothing."""
        size = os.fstat(self._fd).st_size
        tail = os.pread(self._fd, 8192, max(0, size - 8192)).decode(errors="replace")
        for line in reversed(tail.splitlines()):
            printable = "".join(c if c.isprintable() else " " for c in line).strip()
            if printable:
                return printable[:500]
        return ""

    def close(self) -> None:
        os.close(self._fd)


class CurveTail:
    """Reads curve.jsonl while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._unread = b""
        self.last: CurvePoint | None = None
        """The latest point read."""

    def read(self) -> list[CurvePoint]:
        """The points that were completed since the last call; lines that are none are skipped."""
        if self._fd is None:
            self._fd = _open_regular(self._path)
        if self._fd is None:
            return []
        points: list[CurvePoint] = []
        for _ in range(16):  # a flood is read over several calls
            chunk = os.read(self._fd, _CURVE_CHUNK_BYTES)
            *lines, self._unread = (self._unread + chunk).split(b"\n")
            self._unread = self._unread[:_CURVE_CHUNK_BYTES]
            for line in lines:
                with contextlib.suppress(ValidationError):
                    points.append(CurvePoint.model_validate_json(line))
            if len(chunk) < _CURVE_CHUNK_BYTES:
                break
        if points:
            self.last = points[-1]
        return points

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _open_regular(path: Path) -> int | None:
    """A descriptor to read ``path`` by; None unless it is a plain file."""
    try:
        fd = os.open(path, os.O_RDONLY | _NO_SURPRISES)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def _read_small(path: Path) -> bytes | None:
    fd = _open_regular(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        data = file.read(_SMALL_FILE_BYTES + 1)
    return data if len(data) <= _SMALL_FILE_BYTES else None


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace ``path`` in one step, so that whoever finds it finds all of it.

    :param durable: wait until it is on the disk.
    :raises OSError: where that is not possible.
    """
    part = path.with_name(path.name + ".part")
    _clear(part)
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_SURPRISES, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(fd)
    part.replace(path)


def _write_durably(path: Path, data: bytes) -> None:
    """The same; on return the name too would survive a power cut."""
    write_atomically(path, data)
    for directory in (path.parent, path.parent.parent):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _clear(path: Path) -> None:
    """Remove what is there, following no link. What resists (a very deep tree) stays."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        with contextlib.suppress(RecursionError):
            shutil.rmtree(path, ignore_errors=True)
