"""Read the loss of a cloud run from the files that trainers write.

:mod:`funnel.forecast.cloud_rows` splits a file into rows. A row without a loss, such as one of an
evaluation, is skipped. A row whose loss or step is not a number is an error. If a run was resumed
from a checkpoint, its steps go back; repeated steps count with their latest loss.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autoresearch.errors import HandoffError
from autoresearch.files import read_given
from funnel.forecast.cloud_rows import (
    BPB_NAMES,
    LOSS_NAMES,
    STEP_NAMES,
    TOKEN_NAMES,
    Row,
    as_number,
    log_rows,
)

Unit = Literal["nats_per_token", "bits_per_byte"]

_SHOWN = 5
MOST_BYTES = 256 << 20
"""Size limit of a log in bytes: a few million lines."""


@dataclass(frozen=True, slots=True)
class CloudPoint:
    """One logged loss, which may be NaN or infinite."""

    step: int | None
    tokens: int
    loss: float


@dataclass(frozen=True, slots=True)
class CloudLog:
    """A run's losses, in order of tokens."""

    points: tuple[CloudPoint, ...]
    unit: Unit
    repeated: int
    """Number of points dropped because the run was resumed from an earlier step."""


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Tokens per step and per sample, for logs that do not report tokens."""

    per_step: int
    per_sample: int
    log_every: int | None = None
    """Steps between logged losses, for logs that do not report steps either."""


def read_cloud_log(path: Path, count: TokenCount) -> CloudLog:
    """Return the losses in a file.

    :raises HandoffError: if the file cannot be read, has no loss, or has invalid lines.
    """
    try:
        text = read_given(path, MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise HandoffError(
            f"the cloud log {path} cannot be read ({reason}); give a CSV file, JSON "
            "lines or what the trainer printed with --log"
        ) from error
    reader = _Reader(path, count)
    try:
        reader.read(log_rows(text))
    except csv.Error as error:
        raise HandoffError(
            f"the cloud log {path} cannot be read as CSV ({error}); write it anew with a step and "
            "a loss in each line"
        ) from error
    return reader.log()


class _Reader:
    """Convert rows into points and record the invalid lines."""

    def __init__(self, path: Path, count: TokenCount) -> None:
        self._path = path
        self._count = count
        self._points: list[CloudPoint] = []
        self._unit: Unit | None = None
        self._bad: list[int] = []
        self._columns: set[str] = set()
        self._repeated = 0
        self._unplaced = 0
        self._epoch = -1.0

    def read(self, rows: Iterable[Row]) -> None:
        for number, values in rows:
            if values is None:
                self._bad.append(number)
                continue
            self._columns.update(values)
            try:
                point = self._point(values)
            except (ValueError, OverflowError):
                self._bad.append(number)
                continue
            if point is None:
                continue
            epoch, points = _epoch(values), self._points
            if points and points[-1].tokens >= point.tokens and epoch > self._epoch >= 0:
                raise HandoffError(
                    f"line {number} of {self._path} is of a later epoch and an earlier step: its "
                    "steps begin anew with each epoch; give a log whose steps go on, or that has "
                    "tokens"
                )
            self._epoch = epoch
            while points and points[-1].tokens >= point.tokens:
                points.pop()
                self._repeated += 1
            if point.tokens > 0:
                points.append(point)

    def log(self) -> CloudLog:
        if self._bad:
            shown = ", ".join(map(str, self._bad[:_SHOWN]))
            more = f" and {len(self._bad) - _SHOWN} more" if len(self._bad) > _SHOWN else ""
            raise HandoffError(
                f"{self._path} has {len(self._bad)} line{'s' * (len(self._bad) != 1)} that cannot "
                f"be read as a step or tokens and a loss ({shown}{more}); fix or remove them"
            )
        if self._unplaced and not self._points:
            raise HandoffError(
                f"{self._path} has losses ({self._unplaced:,}) and no steps; give a log that has "
                "steps (trainer_state.json, say), or the steps from one loss to the next "
                "(logging_steps) with --log-every"
            )
        if self._unit is None or not self._points:
            columns = ", ".join(sorted(self._columns))[:200] or "none"
            raise HandoffError(
                f"{self._path} has no losses (columns: {columns}); it needs {STEP_NAMES[0]} or "
                f"{TOKEN_NAMES[0]}, and {LOSS_NAMES[0]} in nats a token or {BPB_NAMES[0]}; the "
                "losses of evaluations do not count"
            )
        return CloudLog(tuple(self._points), self._unit, self._repeated)

    def _point(self, values: Mapping[str, object]) -> CloudPoint | None:
        for names, unit in ((BPB_NAMES, "bits_per_byte"), (LOSS_NAMES, "nats_per_token")):
            loss = _number(values, names, is_count=False)
            if loss is not None and (self._unit or unit) == unit:
                break
        else:
            return None
        step, tokens = _whole(values, STEP_NAMES), _whole(values, TOKEN_NAMES)
        samples = _whole(values, ("consumed_samples",))
        if tokens is None and samples is not None:
            tokens = samples * self._count.per_sample
        if tokens is None and step is not None:
            tokens = step * self._count.per_step
        if tokens is None:
            self._unplaced += 1
            if self._count.log_every is None:
                return None
            step = self._unplaced * self._count.log_every
            tokens = step * self._count.per_step
        self._unit = "bits_per_byte" if unit == "bits_per_byte" else "nats_per_token"
        return CloudPoint(step, tokens, loss)


def _epoch(values: Mapping[str, object]) -> float:
    try:
        return as_number(values.get("epoch"), is_count=False)
    except (ValueError, OverflowError):
        return -1.0


def _number(values: Mapping[str, object], names: Iterable[str], *, is_count: bool) -> float | None:
    """Return the number in the first of these columns that is not empty; None if all are.

    :raises ValueError: if the value is not a number.
    """
    for name in names:
        value = values.get(name)
        if value is not None and value != "":
            return as_number(value, is_count=is_count)
    return None


def _whole(values: Mapping[str, object], names: Iterable[str]) -> int | None:
    number = _number(values, names, is_count=True)
    if number is None:
        return None
    if not number.is_integer() or number < 0:
        raise ValueError
    return int(number)
