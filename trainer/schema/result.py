"""Define the result of a training run: its curve, and a measurement or a failure.

A trial's process writes these and may write anything. So all numbers, texts and curves are bounded
here, once, for every reader. The bounds are wide enough for any honest trial, and narrow enough
that sums, squares, quotients and dates computed from them are finite. A value outside makes the
result or the curve's point invalid.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    AliasChoices,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)

from autoresearch.values import Frozen, PlainText
from trainer.schema.measure import MOST_PARTS, Direction, Sha256

_FP32_MAX = 3.5e38
"""Largest loss or norm: they are computed in 32 bits."""
_LEAST = 1e-12
"""Least value of a number that is divided by."""

Count = Annotated[int, Field(gt=0, le=2**53 - 1, strict=True)]
"""Number of steps, tokens, bytes or parameters: as far as floats and JavaScript count exactly."""
Loss = Annotated[float, Field(ge=-1e-3, le=_FP32_MAX, allow_inf_nan=False)]
"""Nats per token; rounding can make it slightly negative."""
Norm = Annotated[float, Field(ge=0, le=_FP32_MAX, allow_inf_nan=False)]
Bits = Annotated[float, Field(ge=_LEAST, le=1e40, allow_inf_nan=False)]
"""Bits per byte or per token."""
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""Up to about 30 years: added to today it is still a date in the calendar."""
Gib = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
WattHours = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=_LEAST, le=1e15, allow_inf_nan=False)]
MAX_MESSAGE_CHARACTERS = 2000
Name = Annotated[PlainText, Field(max_length=200)]


Score = Annotated[float, Field(ge=-1e30, le=1e30, allow_inf_nan=False)]
"""Score that a command prints."""


class CurvePoint(Frozen):
    """One line of curve.jsonl. ``loss`` and ``grad_norm`` are of this step, before its update.

    A command prints a step and a loss, in its own unit, and nothing else.
    """

    step: Annotated[int, Field(ge=0, le=2**53 - 1, strict=True)]
    """1 for the first step; a command counts its own way."""
    tokens: Count | None = Field(None, exclude_if=lambda value: value is None)
    """Tokens trained on so far, this step included."""
    loss: Annotated[float, Field(ge=-_FP32_MAX, le=_FP32_MAX, allow_inf_nan=False)]
    """Nats per token; a command's loss in its own unit."""
    lr: Norm | None = Field(None, exclude_if=lambda value: value is None)
    grad_norm: Norm | None = Field(None, exclude_if=lambda value: value is None)
    """Before clipping."""
    elapsed_s: Seconds
    """Seconds since the first step began; for a command, since its start."""

    @model_validator(mode="after")
    def _of_one_trainer(self) -> Self:
        known = [value is not None for value in (self.tokens, self.lr, self.grad_norm)]
        if any(known) and not all(known):
            raise ValueError("a point has tokens, lr and grad_norm, or none of them")
        if all(known) and (self.step < 1 or self.loss < -1e-3):
            raise ValueError("a point has a step from 1 on and a loss that is not negative")
        return self


class TextScore(Frozen):
    """Score of one more text."""

    sha256: Sha256
    """Hash of its file of tokens."""
    val_bpb: Bits
    """Bits per byte over the whole text."""
    val_bytes: Count
    val_tokens: Count
    """Number of targets: all tokens of every part but its first."""
    parts_bpb: Annotated[tuple[Bits, ...], Field(min_length=1, max_length=MOST_PARTS)]
    """Score of each part, in their order."""


class TrialOk(Frozen):
    """A trial that ended with a measurement."""

    is_printed: ClassVar[bool] = False
    peak_gpu_mem_gib: ClassVar[None] = None
    """:attr:`peak_mem_gib` is the device's."""

    status: Literal["ok"] = "ok"
    val_bpb: Bits
    """sum(NLL in nats) / (ln 2 × UTF-8 bytes scored)."""
    val_bits_per_token: Bits
    val_bytes: Count
    val_tokens: Count
    train_loss_first: Loss
    train_loss_last: Loss
    steps: Count
    tokens: Count
    params: Count
    step_ms: Rate
    """Median over the steps after the first."""
    tokens_per_s: Rate
    """Tokens trained over ``train_s``."""
    train_s: Seconds
    eval_s: Seconds
    setup_s: Seconds
    """Seconds from the start of the trial's process to its first step."""
    peak_mem_gib: Gib
    """Peak device memory allocated on CUDA; peak resident memory on CPU."""
    peak_reserved_gib: Gib | None = None
    """Peak device memory that the allocator held, in use or not; None on CPU."""
    energy_wh: WattHours | None = None
    """None if nothing measures it."""
    gpu_util_pct: Percent | None = Field(None, exclude_if=lambda value: value is None)
    """Mean over the whole trial, of which start and evaluation are a part; None and omitted from
    JSON if nothing measures it."""
    backend: Name
    device: Name
    """The device's own name."""
    precision: Name
    texts: Annotated[tuple[TextScore, ...], Field(max_length=100)] = Field(
        (), exclude_if=lambda scored: not scored
    )
    """Scores of the spec's additional texts, in its order; omitted from JSON if there are none, so
    that such results are written as before."""
    checkpoints_bpb: Annotated[tuple[Bits, ...], Field(max_length=100)] = Field(
        (),
        exclude_if=lambda scored: not scored,
        validation_alias=AliasChoices("checkpoints_bpb", "looks_bpb"),
    )
    """:attr:`val_bpb` at each of the spec's ``checkpoints``, in its order; omitted if none."""

    @property
    def objective(self) -> float:
        """Objective that the search minimizes."""
        return self.val_bpb

    @property
    def peak_gib(self) -> float:
        """Peak memory of the device that trained."""
        return self.peak_mem_gib

    def longer_s(self, steps: int, _times: float) -> float:
        """Return the expected seconds of a run of so many steps, a multiple of this one's."""
        return self.setup_s + steps * self.step_ms / 1000 + self.eval_s


class CommandOk(Frozen):
    """A command that ended with a score: what it printed, and what was measured from outside."""

    is_printed: ClassVar[bool] = True
    """Whether score and curve are what a program printed, in its own digits and steps."""
    eval_s: ClassVar[float] = 0.0
    """:attr:`train_s` includes its evaluation."""
    texts: ClassVar[tuple[TextScore, ...]] = ()
    params: ClassVar[None] = None
    step_ms: ClassVar[None] = None

    status: Literal["scored"] = "scored"
    score: Score
    """The printed score, in the menu's unit."""
    direction: Direction = "minimise"
    steps: Annotated[int, Field(ge=0, le=2**53 - 1, strict=True)] | None = None
    """Last step of the curve."""
    train_s: Seconds
    """Seconds from the command's start to its end."""
    setup_s: Seconds
    """Seconds from the start of the trial's process to the command's start."""
    peak_mem_gib: Gib | None = None
    """Peak resident memory of the largest of its processes."""
    peak_gpu_mem_gib: Gib | None = Field(None, exclude_if=lambda value: value is None)
    """Most GPU memory that its processes held together, by NVML, the driver's own part included;
    None and omitted from JSON without a GPU, or if it is unknown."""
    energy_wh: WattHours | None = None
    gpu_util_pct: Percent | None = Field(None, exclude_if=lambda value: value is None)
    """See :attr:`TrialOk.gpu_util_pct`."""

    @property
    def objective(self) -> float:
        """Objective that the search minimizes: the score, or its negative."""
        return self.score if self.direction == "minimise" else -self.score

    @property
    def peak_gib(self) -> float | None:
        """Peak memory of the device that trained, if that is known."""
        return self.peak_gpu_mem_gib or self.peak_mem_gib

    def longer_s(self, _steps: int, times: float) -> float:
        """See :meth:`TrialOk.longer_s`."""
        return self.setup_s + self.train_s * times


Measured: TypeAlias = TrialOk | CommandOk
"""A trial that ended with a number."""

FailureStatus: TypeAlias = Literal[
    "nonfinite", "oom", "timeout", "crash", "killed", "pruned", "no_score"
]
"""``no_score``: a command ended successfully without a score."""


class TrialFailed(Frozen):
    """A trial that ended without a measurement. It carries no score."""

    is_printed: ClassVar[bool] = False
    texts: ClassVar[tuple[TextScore, ...]] = ()

    status: FailureStatus
    message: Annotated[PlainText, Field(max_length=MAX_MESSAGE_CHARACTERS)]
    """One sentence for a person and for the proposer."""
    steps: Annotated[int, Field(ge=0, le=2**53 - 1, strict=True)] | None = None
    """Optimizer steps done, if known."""
    peak_mem_gib: Gib | None = None
    peak_gpu_mem_gib: Gib | None = Field(None, exclude_if=lambda value: value is None)
    """See :attr:`CommandOk.peak_gpu_mem_gib`."""


TrialResult: TypeAlias = Annotated[Measured | TrialFailed, Field(discriminator="status")]

_RESULT: TypeAdapter[Measured | TrialFailed] = TypeAdapter(TrialResult)


def parse_result(text: str | bytes) -> Measured | TrialFailed:
    """Parse a result.json.

    :raises pydantic.ValidationError: on anything else.
    """
    return _RESULT.validate_json(text)


class Place(Frozen):
    """A lane, and its machine and device if these are not the campaign's own."""

    lane: PlainText
    """``0``, ``1``, … on one machine."""
    node: PlainText | None = None
    """Machine name; None, and omitted from rows: the campaign's own."""
    device: PlainText | None = None
    """Kind of device, like ``NVIDIA GB10``; None, and omitted from rows: the campaign's own."""

    @model_serializer(mode="wrap")
    def _omit_campaign_fields(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if value is not None}

    def __str__(self) -> str:
        return self.lane


MAX_LINE_BYTES = 1024
"""A point has about 120 bytes."""
_MIN_LINE_BYTES = 34
"""Fewer bytes cannot hold the field names, so a flood of blank lines costs nothing."""
MAX_POINTS = 20_000
"""Most points kept of a curve: about 25 MB."""


class CurveLines:
    """Parses a curve.jsonl in pieces, wherever they are cut."""

    def __init__(self, max_step: int | None = None) -> None:
        """Start an empty curve.

        :param max_step: the last step of the trial's budget, if it has one; later points are
            dropped.
        """
        self._max_step = max_step
        self._unread = b""
        self._last_step = -1

    def feed(self, data: bytes) -> list[CurvePoint]:
        """Return the points completed by ``data``, in ascending steps."""
        *lines, unread = (self._unread + data).split(b"\n")
        # one byte too many, so that the line stays invalid
        self._unread = unread[: MAX_LINE_BYTES + 1]
        points = []
        for line in lines:
            if not _MIN_LINE_BYTES <= len(line) <= MAX_LINE_BYTES:
                continue
            with suppress(ValidationError):
                point = CurvePoint.model_validate_json(line)
                is_late = self._max_step is not None and point.step > self._max_step
                if point.step > self._last_step and not is_late:
                    self._last_step = point.step
                    points.append(point)
        return points


class KeptCurve:
    """A curve of at most :data:`MAX_POINTS` points; a longer one is thinned evenly.

    The first and the last point are always kept.
    """

    def __init__(self) -> None:
        self._points: list[CurvePoint] = []
        self._every = 1
        self._seen = 0
        self._last: CurvePoint | None = None

    def add(self, points: Iterable[CurvePoint]) -> None:
        """Add points."""
        for point in points:
            if self._seen % self._every == 0:
                self._points.append(point)
            self._seen += 1
            self._last = point
            if len(self._points) >= MAX_POINTS:
                self._points = self._points[::2]
                self._every *= 2

    def points(self) -> list[CurvePoint]:
        """Return the kept points, in ascending steps."""
        if self._last is None or self._points[-1] is self._last:
            return list(self._points)
        return [*self._points, self._last]
