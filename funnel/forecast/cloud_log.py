"""Read the loss of a cloud run from the files that trainers write.

:mod:`funnel.forecast.cloud_rows` splits a file into rows. A row without a loss, such as one of an
evaluation, is skipped. A row whose loss or step is not a number is an error. If a run was resumed
from a checkpoint, its steps go back; repeated steps count with their latest loss. If every process
of a run writes its own loss into the same log, the loss of a step is their mean.
"""

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

from autoresearch.errors import HandoffError
from autoresearch.files import read_given
from funnel.forecast.cloud_rows import (
    BPB_NAMES,
    LOSS_NAMES,
    RANK_NAMES,
    STEP_NAMES,
    TOKEN_NAMES,
    Row,
    as_number,
    log_rows,
)

Unit = Literal["nats_per_token", "bits_per_byte"]

_SHOWN = 5
FEWEST_STEPS = 3
"""Fewest steps by which processes that a log does not name are recognized."""
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
    ranks: int = 1
    """Number of processes that wrote into it."""


@dataclass(frozen=True, slots=True)
class _Logged:
    """A point as it stands in the log."""

    line: int
    rank: str
    """The process that wrote it; empty if the log does not name it."""
    epoch: float
    point: CloudPoint


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
        self._logged: list[_Logged] = []
        self._unit: Unit | None = None
        self._bad: list[int] = []
        self._columns: set[str] = set()
        self._unplaced = 0

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
            if point is not None:
                rank = " ".join(str(values[name]) for name in RANK_NAMES if values.get(name))
                self._logged.append(_Logged(number, rank, _epoch(values), point))

    def log(self) -> CloudLog:
        """Return the run's losses.

        :raises HandoffError: if there are none, or some lines are invalid.
        """
        by_rank = _by_rank(self._logged)
        found = [self._run(logged) for logged in by_rank]
        points = _mean_of([points for points, _ in found])
        self._check(points)
        assert self._unit is not None
        return CloudLog(tuple(points), self._unit, max(again for _, again in found), len(by_rank))

    def _run(self, logged: Iterable[_Logged]) -> tuple[list[CloudPoint], int]:
        """Return one process's points in order of tokens, and how many a restart repeated."""
        points: list[CloudPoint] = []
        repeated, before = 0, -1.0
        for one in logged:
            point = one.point
            if points and points[-1].tokens >= point.tokens and one.epoch > before >= 0:
                raise HandoffError(
                    f"line {one.line} of {self._path} is of a later epoch and an earlier step: its "
                    "steps begin anew with each epoch; give a log whose steps go on, or that has "
                    "tokens"
                )
            before = one.epoch
            while points and points[-1].tokens >= point.tokens:
                points.pop()
                repeated += 1
            if point.tokens > 0:
                points.append(point)
        return points, repeated

    def _check(self, points: Sequence[CloudPoint]) -> None:
        if self._bad:
            shown = ", ".join(map(str, self._bad[:_SHOWN]))
            more = f" and {len(self._bad) - _SHOWN} more" if len(self._bad) > _SHOWN else ""
            raise HandoffError(
                f"{self._path} has {len(self._bad)} line{'s' * (len(self._bad) != 1)} that cannot "
                f"be read as a step or tokens and a loss ({shown}{more}); fix or remove them"
            )
        if self._unplaced and not points:
            raise HandoffError(
                f"{self._path} has losses ({self._unplaced:,}) and no steps; give a log that has "
                "steps (trainer_state.json, say), or the steps from one loss to the next "
                "(logging_steps) with --log-every"
            )
        if self._unit is None or not points:
            columns = ", ".join(sorted(self._columns))[:200] or "none"
            raise HandoffError(
                f"{self._path} has no losses (columns: {columns}); it needs {STEP_NAMES[0]} or "
                f"{TOKEN_NAMES[0]}, and {LOSS_NAMES[0]} in nats a token or {BPB_NAMES[0]}; the "
                "losses of evaluations do not count"
            )

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


def _by_rank(logged: Sequence[_Logged]) -> list[list[_Logged]]:
    """Return the points of each process that wrote into a log.

    Their names distinguish them, if some step has points of several. If a log does not name them,
    at least half of its points have the step of the point before: the n-th point of a step is then
    taken for the n-th process.
    """
    named: dict[str, list[_Logged]] = defaultdict(list)
    writers: dict[int, set[str]] = defaultdict(set)
    for one in logged:
        named[one.rank].append(one)
        writers[one.point.tokens].add(one.rank)
    if any(len(names) > 1 for names in writers.values()):
        return list(named.values())
    same = sum(one.point.tokens == two.point.tokens for one, two in pairwise(logged))
    if 2 * same < len(logged) or len(writers) < FEWEST_STEPS:
        return [list(logged)]
    seen: Counter[int] = Counter()
    unnamed: dict[int, list[_Logged]] = defaultdict(list)
    for one in logged:
        unnamed[seen[one.point.tokens]].append(one)
        seen[one.point.tokens] += 1
    return list(unnamed.values())


def _mean_of(runs: Sequence[Sequence[CloudPoint]]) -> list[CloudPoint]:
    """Return the mean loss over processes at each step."""
    if len(runs) == 1:
        return list(runs[0])
    at: dict[int, list[CloudPoint]] = defaultdict(list)
    for points in runs:
        for point in points:
            at[point.tokens].append(point)
    return [
        replace(points[0], loss=sum(one.loss for one in points) / len(points))
        for _, points in sorted(at.items())
    ]


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
