"""What came of a training run: its curve, and a measurement or a failure.

A trial's process writes these, and may write anything. So this is where its numbers and words get
their bounds, once: each is as wide as an honest trial could ever need and narrow enough that sums,
squares, quotients and dates made of them further on are numbers and dates. What lies outside is no
result, and no point of a curve.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, TypeAdapter, model_validator

from autoresearch.values import Frozen, PlainText
from trainer.spec.measure import Direction
from trainer.spec.text import MOST_PARTS, Sha256

_FP32_MAX = 3.5e38
"""No loss or norm is larger: they are computed in 32 bits."""
_LEAST = 1e-12
"""The least that a number to be divided by may be."""

Count = Annotated[int, Field(gt=0, le=2**53 - 1, strict=True)]
"""A number of steps, tokens, bytes or parameters: as far as a float and a page count exactly."""
Loss = Annotated[float, Field(ge=-1e-3, le=_FP32_MAX, allow_inf_nan=False)]
"""Nats per token; rounding can make it a hair less than none."""
Norm = Annotated[float, Field(ge=0, le=_FP32_MAX, allow_inf_nan=False)]
Bits = Annotated[float, Field(ge=_LEAST, le=1e40, allow_inf_nan=False)]
"""Per byte or per token."""
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""Thirty years, and a date in the calendar when added to today's."""
Gib = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
WattHours = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=_LEAST, le=1e15, allow_inf_nan=False)]
MAX_MESSAGE_CHARACTERS = 2000
Name = Annotated[PlainText, Field(max_length=200)]


Score = Annotated[float, Field(ge=-1e30, le=1e30, allow_inf_nan=False)]
"""Whatever a command measures."""


def _unknown(value: object) -> bool:
    return value is None


class CurvePoint(Frozen):
    """One line of curve.jsonl. ``loss`` and ``grad_norm`` are of this step, before its update.

    A command prints a step and a loss, in whatever unit that is, and nothing else is known of it.
    """

    step: Annotated[int, Field(ge=0, le=2**53 - 1, strict=True)]
    """1 for the first; of a command, as it counts."""
    tokens: Count | None = Field(None, exclude_if=_unknown)
    """Trained on so far, this step included."""
    loss: Annotated[float, Field(ge=-_FP32_MAX, le=_FP32_MAX, allow_inf_nan=False)]
    """Nats per token; of a command, its own."""
    lr: Norm | None = Field(None, exclude_if=_unknown)
    grad_norm: Norm | None = Field(None, exclude_if=_unknown)
    """Before clipping."""
    elapsed_s: Seconds
    """Since the first step began; of a command, since it was started."""

    @model_validator(mode="after")
    def _of_one_trainer(self) -> Self:
        known = [value is not None for value in (self.tokens, self.lr, self.grad_norm)]
        if any(known) and not all(known):
            raise ValueError("a point has tokens, lr and grad_norm, or none of them")
        if all(known) and (self.step < 1 or self.loss < -1e-3):
            raise ValueError("a point has a step from 1 on and a loss that is not negative")
        return self


class TextScore(Frozen):
    """What one more text was scored at."""

    sha256: Sha256
    """Of its file of tokens."""
    val_bpb: Bits
    """As :attr:`TrialOk.val_bpb`, over the whole text."""
    val_bytes: Count
    val_tokens: Count
    """Targets: of every part all tokens but the first."""
    parts_bpb: Annotated[tuple[Bits, ...], Field(min_length=1, max_length=MOST_PARTS)]
    """Of each part by itself, in their order."""


class TrialOk(Frozen):
    """A trial that ended with a measurement."""

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
    """From the birth of the trial's process to its first step."""
    peak_mem_gib: Gib
    """Peak device memory allocated on CUDA; peak resident memory on CPU."""
    peak_reserved_gib: Gib | None = None
    """Peak device memory that the allocator held, in use or not; None on CPU."""
    energy_wh: WattHours | None = None
    """None where nothing measures it."""
    backend: Name
    device: Name
    """The device's own name."""
    precision: Name
    texts: Annotated[tuple[TextScore, ...], Field(max_length=100)] = Field(
        (), exclude_if=lambda scored: not scored
    )
    """Of the texts that the spec names besides, in its order. Left out of JSON where it named
    none, so that such results are written as they always were."""
    looks_bpb: Annotated[tuple[Bits, ...], Field(max_length=100)] = Field(
        (), exclude_if=lambda scored: not scored
    )
    """:attr:`val_bpb` at each of the spec's ``looks``, in its order; left out likewise."""

    @property
    def objective(self) -> float:
        """What the search minimises."""
        return self.val_bpb


class CommandOk(Frozen):
    """A command that ended with a score: what it printed, and what was seen of it from outside."""

    status: Literal["scored"] = "scored"
    score: Score
    """As it was printed, under the menu's unit."""
    direction: Direction = "minimise"
    steps: Annotated[int, Field(ge=0, le=2**53 - 1, strict=True)] | None = None
    """The last of the curve."""
    train_s: Seconds
    """From the command's start to its end."""
    setup_s: Seconds
    """From the birth of the trial's process to the command's start."""
    peak_mem_gib: Gib | None = None
    """Peak resident memory of the largest of its processes."""
    energy_wh: WattHours | None = None

    @property
    def objective(self) -> float:
        """What the search minimises: the score, or its negative."""
        return self.score if self.direction == "minimise" else -self.score


Measured: TypeAlias = TrialOk | CommandOk
"""A trial that ended with a number."""

FailureStatus: TypeAlias = Literal[
    "nonfinite", "oom", "timeout", "crash", "killed", "pruned", "no_score"
]
"""``no_score``: a command ended well and said none."""


class TrialFailed(Frozen):
    """A trial that ended without one. It carries no score."""

    status: FailureStatus
    message: Annotated[PlainText, Field(max_length=MAX_MESSAGE_CHARACTERS)]
    """One sentence for a person and for the proposer."""
    steps: Annotated[int, Field(ge=0, le=2**53 - 1, strict=True)] | None = None
    """Optimizer steps done, where known."""
    peak_mem_gib: Gib | None = None


TrialResult: TypeAlias = Annotated[Measured | TrialFailed, Field(discriminator="status")]

_RESULT: TypeAdapter[Measured | TrialFailed] = TypeAdapter(TrialResult)


def parse_result(text: str | bytes) -> Measured | TrialFailed:
    """The TrialResult in a result.json.

    :raises pydantic.ValidationError: on anything else.
    """
    return _RESULT.validate_json(text)
