"""What came of a training run: its curve, and a measurement or a failure."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from trainer.spec.values import Finite, Frozen, NonNegative, NonNegativeInt, Positive, PositiveInt


class CurvePoint(Frozen):
    """One line of curve.jsonl. ``loss`` and ``grad_norm`` are of this step, before its update."""

    step: PositiveInt
    """1 for the first."""
    tokens: PositiveInt
    """Trained on so far, this step included."""
    loss: Finite
    """Nats per token."""
    lr: NonNegative
    grad_norm: NonNegative
    """Before clipping."""
    elapsed_s: NonNegative
    """Since the first step began."""


class TrialOk(Frozen):
    """A trial that ended with a measurement."""

    status: Literal["ok"] = "ok"
    val_bpb: Positive
    """sum(NLL in nats) / (ln 2 × UTF-8 bytes scored)."""
    val_bits_per_token: Positive
    val_bytes: PositiveInt
    val_tokens: PositiveInt
    train_loss_first: Finite
    train_loss_last: Finite
    steps: PositiveInt
    tokens: PositiveInt
    params: PositiveInt
    step_ms: Positive
    """Median over the steps after the first."""
    tokens_per_s: Positive
    """Tokens trained over ``train_s``."""
    train_s: NonNegative
    eval_s: NonNegative
    setup_s: NonNegative
    """From the birth of the trial's process to its first step."""
    peak_mem_gib: NonNegative
    """Peak device memory allocated on CUDA; peak resident memory on CPU."""
    peak_reserved_gib: NonNegative | None = None
    """Peak device memory that the allocator held, in use or not; None on CPU."""
    energy_wh: NonNegative | None = None
    """None where nothing measures it."""
    backend: str
    device: str
    """The device's own name."""
    precision: str


FailureStatus: TypeAlias = Literal["nonfinite", "oom", "timeout", "crash", "killed", "pruned"]


class TrialFailed(Frozen):
    """A trial that ended without one. It carries no score: failure is never a number."""

    status: FailureStatus
    message: Annotated[str, Field(max_length=2000)]
    """One sentence for a person and for the proposer."""
    steps: NonNegativeInt | None = None
    """Optimizer steps done, where known."""
    peak_mem_gib: NonNegative | None = None


TrialResult: TypeAlias = Annotated[TrialOk | TrialFailed, Field(discriminator="status")]

_RESULT: TypeAdapter[TrialOk | TrialFailed] = TypeAdapter(TrialResult)


def parse_result(text: str | bytes) -> TrialOk | TrialFailed:
    """The TrialResult in a result.json.

    :raises pydantic.ValidationError: on anything else.
    """
    return _RESULT.validate_json(text)
