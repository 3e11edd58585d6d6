"""The loss of a cloud run, from the files that trainers leave: CSV, JSON lines, Megatron-LM's log.

Columns go by the names in use in the field, in any case; ``train/loss`` is ``train_loss``. A line
without a loss (of an evaluation, say) is skipped; one whose loss or place is no number is an error.
A last line without its end is still being written, and left for the next time. Where a run was
resumed from a checkpoint its steps go back: what is repeated counts as it was the last time.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autoresearch.errors import HandoffError
from autoresearch.given_file import read_given

STEP_NAMES = ("step", "_step", "iteration", "iter", "global_step", "train_iter")
TOKEN_NAMES = (
    "tokens", "consumed_tokens", "train_tokens", "tokens_seen", "total_tokens", "num_tokens",
)  # fmt: skip
LOSS_NAMES = ("loss", "train_loss", "lm_loss", "training_loss", "nll")
BPB_NAMES = ("bpb", "bits_per_byte", "train_bpb")

Unit = Literal["nats_per_token", "bits_per_byte"]

_MEGATRON = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|")
_SAMPLES = re.compile(r"\bconsumed samples:\s*(\d+)")
_LM_LOSS = re.compile(r"\blm loss:\s*(\S+)")
_SHOWN = 5
MOST_BYTES = 256 << 20
"""The longest log that is read: some million lines."""


@dataclass(frozen=True, slots=True)
class CloudPoint:
    """One logged loss; it may be NaN or infinite."""

    step: int | None
    tokens: int
    loss: float


@dataclass(frozen=True, slots=True)
class CloudLog:
    """A run's losses in the order of its tokens."""

    points: tuple[CloudPoint, ...]
    unit: Unit
    repeated: int
    """Points dropped because the run was resumed from before them."""


@dataclass(frozen=True, slots=True)
class TokenCount:
    """How steps and samples become tokens where a log has no tokens of its own."""

    per_step: int
    per_sample: int


def read_cloud_log(path: Path, count: TokenCount) -> CloudLog:
    """The losses in a file.

    :raises HandoffError: where it cannot be read, has no loss, or has lines that make no sense.
    """
    try:
        text = read_given(path, MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise HandoffError(
            f"the cloud log {path} cannot be read ({reason}); name a CSV, JSON lines or "
            "Megatron-LM log with --log"
        ) from error
    reader = _Reader(path, count)
    try:
        reader.read(_rows(text))
    except csv.Error as error:
        raise HandoffError(
            f"the cloud log {path} cannot be read as CSV ({error}); write it anew with a step and "
            "a loss in each line"
        ) from error
    return reader.log()


Row = tuple[int, Mapping[str, object] | None]
"""Line number, from 1, and its values by column; None where the line makes no sense."""


def _rows(text: str) -> Iterator[Row]:
    lines = text.split("\n")
    unfinished = lines.pop()
    if any(_MEGATRON.search(line) for line in [*lines, unfinished]):
        return _megatron_rows(lines)
    if next(filter(str.strip, [*lines, unfinished]), "").lstrip().startswith("{"):
        return _json_rows([*lines, *([unfinished] if _is_json(unfinished) else [])])
    return _csv_rows(lines, unfinished)


def _megatron_rows(lines: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        iteration, loss = _MEGATRON.search(line), _LM_LOSS.search(line)
        if iteration is None or loss is None:
            continue
        samples = _SAMPLES.search(line)
        yield (
            number,
            {
                "iteration": iteration[1],
                "consumed_samples": samples[1] if samples else None,
                "loss": loss[1].rstrip("|"),
            },
        )


def _json_rows(lines: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        values = json.loads(line) if _is_json(line) else None
        yield number, _plain(values) if isinstance(values, dict) else None


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _csv_rows(lines: list[str], unfinished: str) -> Iterator[Row]:
    records = csv.reader([*lines, unfinished])
    header = next(records, [])
    for record in records:
        if not record:
            continue
        whole = len(record) == len(header)
        if whole:
            yield records.line_num, _plain(dict(zip(header, record, strict=True)))
        elif records.line_num <= len(lines):
            yield records.line_num, None


def _plain(values: Mapping[str, object]) -> dict[str, object]:
    return {re.sub(r"[\s/.-]+", "_", name.strip().lower()): value for name, value in values.items()}


class _Reader:
    """Turns rows into points, and keeps count of what makes no sense."""

    def __init__(self, path: Path, count: TokenCount) -> None:
        self._path = path
        self._count = count
        self._points: list[CloudPoint] = []
        self._unit: Unit | None = None
        self._bad: list[int] = []
        self._columns: set[str] = set()
        self._repeated = 0

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
                self._add(point)

    def log(self) -> CloudLog:
        if self._bad:
            shown = ", ".join(map(str, self._bad[:_SHOWN]))
            more = f" and {len(self._bad) - _SHOWN} more" if len(self._bad) > _SHOWN else ""
            raise HandoffError(
                f"{self._path} has {len(self._bad)} line{'s' * (len(self._bad) != 1)} that cannot "
                f"be read as a step or tokens and a loss ({shown}{more}); mend or remove them"
            )
        if self._unit is None or not self._points:
            columns = ", ".join(sorted(self._columns))[:200] or "none"
            raise HandoffError(
                f"{self._path} has no losses (columns: {columns}); it needs {STEP_NAMES[0]} or "
                f"{TOKEN_NAMES[0]}, and {LOSS_NAMES[0]} in nats a token or {BPB_NAMES[0]}"
            )
        return CloudLog(tuple(self._points), self._unit, self._repeated)

    def _point(self, values: Mapping[str, object]) -> CloudPoint | None:
        for names, unit in ((BPB_NAMES, "bits_per_byte"), (LOSS_NAMES, "nats_per_token")):
            loss = _number(values, names)
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
            return None
        self._unit = "bits_per_byte" if unit == "bits_per_byte" else "nats_per_token"
        return CloudPoint(step, tokens, loss)

    def _add(self, point: CloudPoint) -> None:
        while self._points and self._points[-1].tokens >= point.tokens:
            self._points.pop()
            self._repeated += 1
        if point.tokens > 0:
            self._points.append(point)


def _number(values: Mapping[str, object], names: Iterable[str]) -> float | None:
    """The first of these columns that holds something.

    :raises ValueError: where that is no number.
    """
    for name in names:
        value = values.get(name)
        if value is None or value == "":
            continue
        return float(value if isinstance(value, (str, int, float)) else str(value))
    return None


def _whole(values: Mapping[str, object], names: Iterable[str]) -> int | None:
    number = _number(values, names)
    if number is None:
        return None
    if not number.is_integer() or number < 0:
        raise ValueError
    return int(number)
