"""Read the loss of a cloud run from the files that trainers write.

:mod:`funnel.forecast.cloud_rows` splits a file into rows. A row without a loss, such as one of an
evaluation, is skipped. A row whose loss or step is not a number is an error. If a run was resumed
from a checkpoint, its steps go back; repeated steps count with their latest loss.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
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
    try:
        return _log_of(log_rows(text), path, count)
    except csv.Error as error:
        raise HandoffError(
            f"the cloud log {path} cannot be read as CSV ({error}); write it anew with a step and "
            "a loss in each line"
        ) from error


def _log_of(rows: Iterable[Row], path: Path, count: TokenCount) -> CloudLog:
    points: list[CloudPoint] = []
    bad: list[int] = []
    unit: Unit | None = None
    repeated = without_place = 0
    last_epoch = -1.0
    for number, values in rows:
        try:
            found = _loss(values, unit)
            step, tokens = _place(values, count) if found else (None, None)
        except (ValueError, OverflowError):
            bad.append(number)
            continue
        if found is None:
            continue
        unit, loss = found
        epoch = _epoch(values)
        if tokens is None:
            without_place += 1
            step = without_place * (count.log_every or 0)
            tokens = step * count.per_step
        is_back = bool(points) and points[-1].tokens >= tokens
        if is_back and epoch > last_epoch >= 0:
            raise HandoffError(
                f"line {number} of {path} is of a later epoch and an earlier step: its steps begin "
                "anew with each epoch; give a log whose steps go on, or that has tokens"
            )
        last_epoch = epoch
        while points and points[-1].tokens >= tokens:
            points.pop()
            repeated += 1
        if tokens > 0:
            points.append(CloudPoint(step, tokens, loss))
    _refuse_bad(bad, path)
    if unit is None or not points:
        raise HandoffError(
            f"{path} has {'losses without steps' if without_place else 'no losses'}; it needs "
            f"{STEP_NAMES[0]} or {TOKEN_NAMES[0]}, and {LOSS_NAMES[0]} in nats a token or "
            f"{BPB_NAMES[0]}, not of evaluations; for losses without steps give the steps from one "
            "to the next with --log-every"
        )
    return CloudLog(tuple(points), unit, repeated)


def _refuse_bad(bad: Sequence[int], path: Path) -> None:
    if bad:
        shown = ", ".join(map(str, bad[:_SHOWN])) + ", …" * (len(bad) > _SHOWN)
        raise HandoffError(
            f"{path} has {len(bad)} lines that cannot be read as a step or tokens and a loss "
            f"({shown}); fix or remove them"
        )


def _loss(values: Mapping[str, object], unit: Unit | None) -> tuple[Unit, float] | None:
    """Return a row's loss in the unit of the rows before, with that unit; None if it has none."""
    units: tuple[tuple[Unit, tuple[str, ...]], ...] = (
        ("bits_per_byte", BPB_NAMES),
        ("nats_per_token", LOSS_NAMES),
    )
    for of, names in units:
        loss = _number(values, names)
        if loss is not None and unit in {None, of}:
            return of, loss
    return None


def _place(values: Mapping[str, object], count: TokenCount) -> tuple[int | None, int | None]:
    """Return a row's step and tokens; None if unknown."""
    step, tokens = _whole(values, STEP_NAMES), _whole(values, TOKEN_NAMES)
    if tokens is None and (samples := _whole(values, ("consumed_samples",))) is not None:
        tokens = samples * count.per_sample
    if tokens is None and step is not None:
        tokens = step * count.per_step
    return step, tokens


def _epoch(values: Mapping[str, object]) -> float:
    try:
        return as_number(values.get("epoch"))
    except (ValueError, OverflowError):
        return -1.0


def _number(
    values: Mapping[str, object], names: Iterable[str], *, is_count: bool = False
) -> float | None:
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
