"""Define the points of an envelope and their grid, and append them to a file as they come."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression
from typing import Literal, NamedTuple, Self, TypeVar

from pydantic import NonNegativeInt, ValidationError, model_validator

from autoresearch.errors import EnvelopeError
from autoresearch.files import writing
from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt, explain
from trainer.schema import Config, FailureStatus, make_config
from trainer.schema.schedule import uncompiled
from trainer.telemetry import DeviceUse

_Line = TypeVar("_Line", bound=Frozen)


class Cell(NamedTuple):
    """Position of a point in the sweep."""

    precision: str
    seq_len: int
    batch_size: int

    def __str__(self) -> str:
        return f"{self.precision} b{self.batch_size} × {self.seq_len}"


class TimedSettings(Frozen):
    """Settings of trials whose steps are timed."""

    device: str
    steps: PositiveInt
    """Optimizer steps of a trial, uncounted ones included."""
    warmup: NonNegativeInt
    """Steps at the start that are not counted."""
    seed: NonNegativeInt = 0
    threads: PositiveInt | None = None

    _without_compile = model_validator(mode="before")(uncompiled)

    @model_validator(mode="after")
    def _check_steps_left(self) -> Self:
        if self.warmup >= self.steps:
            raise ValueError(
                f"{self.warmup} of {self.steps} steps are warm-up, which leaves none to count"
            )
        return self


class EnvelopeSettings(TimedSettings):
    """Everything that must be equal for two points to be comparable."""

    kind: Literal["envelope"] = "envelope"
    schema_version: Literal[1] = 1
    menu: str
    menu_sha256: str
    base: Config
    """The menu's baseline; a point changes only its batch_size, seq_len and precision."""
    vocab_size: PositiveInt
    backend: str
    wall_s: Positive = 1800
    memory_gib: Positive | None = None
    """Limit of a trial's resident memory."""

    def config(self, cell: Cell) -> Config:
        """Return the config that a point trains.

        :raises SpecError: if no trainer could.
        """
        return make_config({**self.base.model_dump(), **cell._asdict()})


class EnvelopePoint(DeviceUse):
    """One measured batch × sequence × precision. A failure has no speed, and a peak if known.

    The device's use is that of the counted steps.
    """

    batch_size: PositiveInt
    seq_len: PositiveInt
    precision: Literal["fp32", "bf16", "fp8"]
    status: Literal["ok", "refused", "beyond"] | FailureStatus
    """``refused``: the backend or the device cannot train this at all. ``beyond``: not run, because
    it would not fit (:mod:`trainer.envelope.sweep`)."""
    message: str = ""
    """Reason for a failure, in one sentence."""
    step_ms: Positive | None = None
    """Mean over the counted steps."""
    tokens_per_s: Positive | None = None
    """Tokens of the counted steps over their time."""
    peak_mem_gib: NonNegative | None = None
    """Peak as in TrialOk: allocated on CUDA, resident on a CPU."""
    params: PositiveInt | None = None
    device_name: str | None = None
    wall_s: NonNegative
    """Seconds from the request to the result, start-up included."""

    @model_validator(mode="after")
    def _check_status_fields(self) -> Self:
        measured = (self.step_ms, self.tokens_per_s, self.peak_mem_gib, self.params)
        if self.status == "ok" and None in measured:
            raise ValueError("a point that is ok has its numbers")
        if self.status != "ok" and (self.step_ms is not None or self.tokens_per_s is not None):
            raise ValueError(f"a point that is {self.status} has no speed")
        return self

    @property
    def cell(self) -> Cell:
        return Cell(self.precision, self.seq_len, self.batch_size)

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.seq_len


class PointsFile:
    """``points.jsonl``: the settings, then one point per line, each on disk before the next.

    A point that was measured again replaces the earlier one. A line that a power cut tore is
    removed when the file is opened.
    """

    def __init__(self, path: Path, settings: EnvelopeSettings) -> None:
        """Create the file, or read the points it holds.

        :raises EnvelopeError: if it was measured with other settings (with the difference), or is
            damaged before its last line.
        :raises MachineryError: if it cannot be written.
        """
        self._path = path
        self._points: dict[Cell, EnvelopePoint] = {}
        with writing(path, instead="choose another folder"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            *lines, torn = path.read_bytes().split(b"\n")
            if torn:
                os.truncate(path, sum(len(line) + 1 for line in lines))
        if not lines:
            self._write(settings)
            return
        # The hash of the menu's text is ignored: what a point depends on is in ``base``.
        seen, wanted = _flat(_parsed(path, 1, lines[0], EnvelopeSettings)), _flat(settings)
        differences = [
            f"{name} was {value} and is {wanted[name]}"
            for name, value in seen.items()
            if wanted[name] != value
        ]
        if differences:
            raise EnvelopeError(
                f"{path} was measured with other settings: {'; '.join(differences)}; use those, or "
                "choose another folder with --out"
            )
        for number, line in enumerate(lines[1:], start=2):
            point = _parsed(path, number, line, EnvelopePoint)
            self._points[point.cell] = point

    @property
    def points(self) -> tuple[EnvelopePoint, ...]:
        """Points in the order they were first measured."""
        return tuple(self._points.values())

    def find(self, cell: Cell) -> EnvelopePoint | None:
        """Return the point of a cell, unless it must be measured again, as after a crash or a
        timeout."""
        point = self._points.get(cell)
        return point if point is not None and point.status in {"ok", "oom"} else None

    def append(self, point: EnvelopePoint) -> None:
        """Add a point durably.

        :raises EnvelopeError: if it comes from another device than the earlier points.
        :raises MachineryError: if the file cannot be written.
        """
        earlier = {p.device_name for p in self._points.values()} - {None, point.device_name}
        if earlier and point.device_name is not None:
            raise EnvelopeError(
                f"the points in {self._path} were measured on {', '.join(map(str, earlier))} and"
                f" this device is {point.device_name}; choose another folder with --out"
            )
        self._write(point)
        self._points[point.cell] = point

    def _write(self, value: Frozen) -> None:
        with writing(self._path, instead="choose another folder"), self._path.open("ab") as file:
            file.write(value.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _parsed(path: Path, number: int, line: bytes, kind: type[_Line]) -> _Line:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        raise EnvelopeError(
            f"line {number} of {path} is not one of ours: {explain(error)}; move the file away to"
            " measure anew"
        ) from error


def _flat(settings: EnvelopeSettings) -> dict[str, object]:
    fields = settings.model_dump(exclude={"menu_sha256"})
    return {**fields.pop("base"), **fields}


PRECISIONS = ("fp32", "bf16", "fp8")
"""From the slowest to the fastest, the order of comparison."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Points by their cell."""

    points: dict[Cell, EnvelopePoint]

    @classmethod
    def of(cls, points: Sequence[EnvelopePoint]) -> Grid:
        return cls({point.cell: point for point in points})

    @property
    def precisions(self) -> list[str]:
        return [name for name in PRECISIONS if any(c.precision == name for c in self.points)]

    def pairs(self) -> list[tuple[str, str]]:
        """Return each precision with the next slower one."""
        names = self.precisions
        return list(zip(names[1:], names, strict=False))

    @property
    def seq_lens(self) -> list[int]:
        return sorted({cell.seq_len for cell in self.points})

    def batch_sizes(self, seq_len: int) -> list[int]:
        """Return the batch sizes measured at this length."""
        return sorted({cell.batch_size for cell in self.points if cell.seq_len == seq_len})

    def largest_batches(self) -> list[tuple[str, int, int | None]]:
        """Return each precision and sequence length with the largest batch that was trained; None
        if none was."""
        largest: dict[tuple[str, int], int] = {}
        for cell, point in self.points.items():
            if point.status == "ok":
                batch = largest.get(cell[:2], 0)
                largest[cell[:2]] = max(batch, cell.batch_size)
        return [
            (precision, seq_len, largest.get((precision, seq_len)))
            for precision in self.precisions
            for seq_len in self.seq_lens
        ]

    def memory_line(self, precision: str) -> tuple[float, float] | None:
        """Return the peak memory as a line through the measured points, by least squares: GiB, and
        GiB per token of a step. None for points of less than two sizes."""
        points = [p for p in self.points.values() if p.precision == precision and p.peak_mem_gib]
        if len({point.tokens_per_step for point in points}) < 2:
            return None
        tokens, peaks_gib = zip(*((p.tokens_per_step, p.peak_mem_gib) for p in points), strict=True)
        slope, constant = linear_regression(tokens, peaks_gib)
        return constant, slope

    def gain_pct(self, of: str, over: str, seq_len: int, batch_size: int) -> float | None:
        """Return how many percent more tokens/s; None if either was not measured."""
        rates = [
            point.tokens_per_s
            for precision in (of, over)
            if (point := self.points.get(Cell(precision, seq_len, batch_size))) is not None
        ]
        if len(rates) < 2 or rates[0] is None or rates[1] is None:
            return None
        return 100 * (rates[0] / rates[1] - 1)
