"""Read and write the files of a trial's directory, without trusting what the trial wrote.

    spec.json     written before the trial's process exists
    trainer.log   what the trial printed, without its middle if it prints too much
    curve.jsonl   one CurvePoint per line, as training proceeds
    result.json   the TrialResult, which the supervisor writes once nothing of the trial runs
    tmp/          the trial's home and temporary files; removed afterwards

A trial may write its own directory, spec.json and result.json included. So the supervisor keeps
copies beside that directory, which the sandbox keeps closed: ``trials/.specs/t000001.json`` and
``t000001.result.json`` for ``trials/t000001``. Spec and result are trusted only while they equal
their copies.

A trial may put links, pipes or gigabytes under the names above. So nothing is opened through a
link, nothing blocks, and nothing is read without a bound. Numbers and texts are bounded by the
types of :mod:`trainer.schema`.
"""

import contextlib
import os
from pathlib import Path

from autoresearch.errors import MachineryError
from autoresearch.files import open_regular, read_given, replace_file, sync_directory, writing
from autoresearch.layout import (
    CURVE_FILE,
    LOG_FILE,
    ORDERS_DIR,
    RESULT_FILE,
    SCRATCH_DIR,
    SPEC_FILE,
)
from autoresearch.safe_text import plain
from trainer.isolation.kernel.libc import punch_hole
from trainer.isolation.scratch import clear
from trainer.schema import (
    CurveLines,
    CurvePoint,
    Measured,
    TrialFailed,
    TrialSpec,
)

_SMALL_FILE_BYTES = 1 << 20
_CURVE_CHUNK_BYTES = 1 << 16
_CURVE_CHUNKS = 4
"""Most chunks of an oversized curve to read per poll."""
MAX_CURVE_BYTES = 64 << 20
"""Longest curve that is read as a whole: half a million points."""


class TrialFiles:
    """A directory prepared for one trial, with its log open."""

    def __init__(self, spec: TrialSpec, trial_dir: Path) -> None:
        """Write the spec, atomically and durably; remove what an interrupted run left.

        :raises MachineryError: if the directory holds a result already or cannot be written.
        """
        self.path = trial_dir
        self._order = spec.model_dump_json().encode()
        with writing(trial_dir, instead="choose another campaign directory"):
            is_new = not os.path.lexists(trial_dir)
            trial_dir.mkdir(parents=True, exist_ok=True)
            if not is_new:
                if os.path.lexists(trial_dir / RESULT_FILE):
                    raise MachineryError(
                        f"the trial directory {trial_dir} already holds a result;"
                        " run the trial in a new directory"
                    )
                for name in (SPEC_FILE, LOG_FILE, CURVE_FILE, SCRATCH_DIR):
                    clear(trial_dir / name)
            self.log = TrialLog(trial_dir / LOG_FILE, spec.limits.log_bytes)
            sealed = sealed_path(trial_dir)
            sealed.parent.mkdir(exist_ok=True)
            _write_durably(sealed, self._order)
            sealed_result_path(trial_dir).unlink(missing_ok=True)
            replace_file(trial_dir / SPEC_FILE, self._order)
        self.curve = CurveTail(trial_dir / CURVE_FILE, spec.max_step)

    def write_result(self, result: Measured | TrialFailed) -> None:
        """Write the trial's result, when nothing of the trial runs any more.

        :raises MachineryError: if the directory cannot be written.
        """
        data = result.model_dump_json(indent=2).encode() + b"\n"
        with writing(f"a result in {self.path}", instead="resume the campaign on another disk"):
            _write_durably(sealed_result_path(self.path), data)
            clear(self.path / RESULT_FILE)
            replace_file(self.path / RESULT_FILE, data)

    def tampering(self) -> str:
        """Return what the trial did to its own spec; empty if it is unchanged."""
        same = read_small(self.path / SPEC_FILE) == self._order
        return "" if same else f"the trial rewrote its own {SPEC_FILE}"

    def close(self) -> None:
        """Close the files and remove the trial's temporary ones."""
        self.curve.close()
        self.log.close()
        with contextlib.suppress(OSError):
            clear(self.path / SCRATCH_DIR)


def wall_s(trial_dir: Path, at_most_s: float) -> float:
    """Return seconds from a trial's spec to its result, by the file system's clock; 0 if one is
    missing.

    :param at_most_s: the trial's limit: it can set its files' times, but cannot have lasted longer.
    """
    try:
        began = (trial_dir / SPEC_FILE).lstat().st_mtime
        return min(max(0.0, (trial_dir / RESULT_FILE).lstat().st_mtime - began), at_most_s)
    except OSError:
        return 0.0


class CurveTail:
    """Reads curve.jsonl while it grows."""

    def __init__(self, path: Path, max_step: int | None = None) -> None:
        """Prepare to read the curve.

        :param max_step: the last step of the trial's budget, if it has one.
        """
        self._path = path
        self._fd: int | None = None
        self._lines = CurveLines(max_step)
        self.last: CurvePoint | None = None
        """Latest point read."""

    def read(self) -> list[CurvePoint]:
        """Return the points completed since the last call; an oversized curve takes several
        calls."""
        if self._fd is None:
            self._fd = _open_regular(self._path)
        if self._fd is None:
            return []
        points: list[CurvePoint] = []
        for _ in range(_CURVE_CHUNKS):
            chunk = os.read(self._fd, _CURVE_CHUNK_BYTES)
            points += self._lines.feed(chunk)
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
    """Return a descriptor to read ``path``; None unless it is a plain file."""
    try:
        return open_regular(path, through_links=False)
    except OSError:
        return None


def read_small(path: Path) -> bytes | None:
    with contextlib.suppress(OSError):
        return read_given(path, _SMALL_FILE_BYTES, through_links=False)
    return None


def _write_durably(path: Path, data: bytes) -> None:
    """Write a file so that its content, its name and its directory's name survive a power cut."""
    replace_file(path, data, durable=True)
    sync_directory(path.parent.parent)


def sealed_path(trial_dir: Path) -> Path:
    """Return the path of the sealed spec of the trial in ``trial_dir``."""
    return trial_dir.parent / ORDERS_DIR / f"{trial_dir.name}.json"


def sealed_result_path(trial_dir: Path) -> Path:
    """Return the path of the sealed result of the trial in ``trial_dir``."""
    return trial_dir.parent / ORDERS_DIR / f"{trial_dir.name}.result.json"


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
