"""Read and write the files of a trial's directory, without trusting what the trial wrote.

    spec.json     written before the trial's process exists; what is trusted later is
                  the copy of :mod:`trainer.isolation.sealed_spec`, which is on the disk by then
    trainer.log   what the trial printed, without its middle if it prints too much
    curve.jsonl   one CurvePoint per line, as training proceeds
    result.json   the TrialResult, which the supervisor writes once nothing of the trial runs;
                  trusted only while it equals the copy beside the sealed spec
    tmp/          the trial's home and temporary files; removed afterwards

A trial may put links, pipes or gigabytes under these names. So nothing is opened through a link,
nothing blocks, and nothing is read without a bound. Numbers and texts are bounded by the types of
:mod:`trainer.spec`.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ValidationError

from autoresearch import errors
from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.files import open_regular, replace_file, sync_directory
from autoresearch.layout import (
    CURVE_FILE,
    LOG_FILE,
    RESULT_FILE,
    SCRATCH_DIR,
    SPEC_FILE,
)
from autoresearch.values import Frozen, PlainText
from trainer.isolation.contradiction import contradiction
from trainer.isolation.scratch import clear
from trainer.isolation.sealed_spec import sealed_path, sealed_result_path
from trainer.isolation.trial_log import TrialLog
from trainer.spec import (
    MAX_MESSAGE_CHARACTERS,
    CurveLines,
    CurvePoint,
    KeptCurve,
    Measured,
    TrialFailed,
    TrialSpec,
    parse_result,
)

_SMALL_FILE_BYTES = 1 << 20
_CURVE_CHUNK_BYTES = 1 << 16
_CURVE_CHUNKS = 4
"""Most chunks of an oversized curve to read per poll."""
MAX_CURVE_BYTES = 64 << 20
"""Longest curve that is read as a whole: half a million points."""


def _cut(text: object) -> object:
    """Cut a sentence that is too long."""
    return text[:MAX_MESSAGE_CHARACTERS] if isinstance(text, str) else text


class TrialError(Frozen):
    """An error of :mod:`autoresearch.errors` sent from the trial's process to the supervisor."""

    kind: Literal["SpecError", "CorpusError", "SandboxError", "MachineryError"]
    message: Annotated[PlainText, BeforeValidator(_cut)]

    @classmethod
    def of(cls, error: AutoresearchError) -> TrialError:
        """Return the record of an error."""
        kinds = (errors.SpecError, errors.CorpusError, errors.SandboxError)
        kind = next((k.__name__ for k in kinds if isinstance(error, k)), "MachineryError")
        return cls.model_validate({"kind": kind, "message": str(error)})

    def as_exception(self) -> AutoresearchError:
        """Return the error, to be raised again."""
        exception: AutoresearchError = getattr(errors, self.kind)(self.message)
        return exception


def _made_new(directory: Path) -> bool:
    """Create the directory, and return whether it is new."""
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        if not directory.is_dir():
            raise
        return False
    return True


class TrialFiles:
    """A directory prepared for one trial, with its log open."""

    def __init__(self, spec: TrialSpec, trial_dir: Path) -> None:
        """Write the spec, atomically and durably; remove what an interrupted run left.

        :raises MachineryError: if the directory holds a result already or cannot be written.
        """
        self.path = trial_dir
        self._order = spec.model_dump_json().encode()
        try:
            if not _made_new(trial_dir):
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
        except OSError as error:
            raise MachineryError(
                f"cannot prepare the trial directory {trial_dir} ({error.strerror});"
                " free some space there or choose another campaign directory"
            ) from error
        self.curve = CurveTail(trial_dir / CURVE_FILE, spec.max_step)

    def settle(self) -> None:
        """Sync the directory's name to disk, if possible."""
        with contextlib.suppress(OSError):
            sync_directory(self.path.parent)

    def write_result(self, result: Measured | TrialFailed) -> None:
        """Write the trial's result, when nothing of the trial runs any more.

        :raises MachineryError: if the directory cannot be written.
        """
        data = result.model_dump_json(indent=2).encode() + b"\n"
        try:
            _write_durably(sealed_result_path(self.path), data)
            clear(self.path / RESULT_FILE)
            replace_file(self.path / RESULT_FILE, data)
        except OSError as error:
            raise MachineryError(
                f"cannot write the result of the trial in {self.path} ({error.strerror});"
                " free some space there and resume the campaign"
            ) from error

    def tampering(self) -> str:
        """Return what the trial did to its own spec; empty if it is unchanged."""
        same = _read_small(self.path / SPEC_FILE) == self._order
        return "" if same else f"the trial rewrote its own {SPEC_FILE}"

    def close(self) -> None:
        """Close the files and remove the trial's temporary ones."""
        self.curve.close()
        self.log.close()
        self.clear_scratch()

    def clear_scratch(self) -> None:
        """Remove its temporary files, when nothing of it runs any more."""
        with contextlib.suppress(OSError):
            clear(self.path / SCRATCH_DIR)


def finished_trial(trial_dir: Path) -> tuple[TrialSpec, Measured | TrialFailed] | None:
    """Return the spec and result of a trial that ended earlier; None if they are invalid, or not of
    its sealed spec."""
    order, data = _read_small(sealed_path(trial_dir)), _read_small(sealed_result_path(trial_dir))
    if order is None or order != _read_small(trial_dir / SPEC_FILE):
        return None
    if data is None or data != _read_small(trial_dir / RESULT_FILE):
        return None
    try:
        spec = TrialSpec.model_validate_json(order)
        result = parse_result(data)
    except ValidationError:
        return None
    return None if contradiction(spec, result) else (spec, result)


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


def read_curve(trial_dir: Path) -> list[CurvePoint]:
    """Return the learning curve a trial left, thinned if it is very long, without invalid lines."""
    fd = _open_regular(trial_dir / CURVE_FILE)
    if fd is None:
        return []
    lines, kept, left_bytes = CurveLines(), KeptCurve(), MAX_CURVE_BYTES
    with os.fdopen(fd, "rb", buffering=0) as file:
        while left_bytes > 0 and (chunk := file.read(_CURVE_CHUNK_BYTES)):
            kept.add(lines.feed(chunk))
            left_bytes -= len(chunk)
    return kept.points()


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


def _read_small(path: Path) -> bytes | None:
    fd = _open_regular(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        data = file.read(_SMALL_FILE_BYTES + 1)
    return data if len(data) <= _SMALL_FILE_BYTES else None


def _write_durably(path: Path, data: bytes) -> None:
    """Write a file so that its content, its name and its directory's name survive a power cut."""
    replace_file(path, data, durable=True)
    sync_directory(path.parent.parent)
