"""Messages between a driver and its lanes on other machines: JSON, followed by bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, ValidationError

from autoresearch.errors import MachineryError
from autoresearch.values import (
    Frozen,
    NonNegative,
    NonNegativeInt,
    PlainText,
    Positive,
    PositiveInt,
)
from trainer.executors.ray.needs import Needs
from trainer.isolation.outcome import TrialError
from trainer.spec import TrialSpec

Line = Annotated[PlainText, Field(max_length=500)]
"""One line about a node."""

PIECE_BYTES = 4 << 20
"""Size limit of one answer's piece of a file; once the trial has ended, a shorter piece is the
last."""

Said = TypeVar("Said", bound=BaseModel)


class LaneOrder(Frozen):
    """Settings for opening a lane on its node."""

    token: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    """The unique name of this opening, which also names its directory there."""
    entry: str
    """``module:function`` that a trial runs."""
    allow_unsandboxed: bool = False
    fork_server: bool = True
    share: NonNegativeInt = 0
    """The index of this lane's share of the node's cores."""
    shares: PositiveInt | None = None
    """The number of shares; None: this lane has all cores."""
    needs: Needs | None = None
    """The needs of the command that trains; None for the built-in trainer."""
    data_dir: str | None = None
    """The node's directory for running trials; None: its own cache folder."""
    script_sha256: str | None = None
    """The hash of the archive that was sent for a command; None for the built-in trainer."""
    lease_s: Positive
    """Time without a request from the driver after which the node ends the trial and the lane."""


class NodeFacts(Frozen):
    """Facts about a machine of the cluster, found by a process on it."""

    host: Line
    code: Line
    """Version and hash of this product's code."""
    python: Line
    torch: Line
    cpu: Line
    """The processor's own name."""
    gpus: tuple[Line, ...]
    """The visible GPUs' own names; none on CPU."""
    cores: PositiveInt
    """The number of cores that a process may use."""
    memory_gib: NonNegative
    confines: bool
    """Whether its kernel can confine a trial to its directory."""
    sandbox: Line
    directory: Line
    """The directory for running trials."""
    disk: Line
    """The reason why nothing can be written there; empty if it can."""
    free_gib: NonNegative
    clock_s: NonNegative
    """Seconds since 1970."""
    lacks: Line = ""
    """The missing ones of an order's needs, and what to do; empty if nothing is missing."""
    memory_monitor: Line
    """The setting of the memory monitor of the node's Ray; empty if it is not set."""

    def kind(self, device: str) -> str:
        """Return the kind of the machine: equal kinds are alike for trials on ``device``."""
        if device.startswith("cuda"):
            return self.gpus[0] if self.gpus else "no GPU"
        return self.cpu


class Opened(Frozen):
    """The result of an opening: a lane, or the reason why there is none."""

    home: str = ""
    """The directory of this opening on the node; each trial runs in its own directory below it."""
    described: Line = ""
    """A description of how trials are confined and started there."""
    refusal: TrialError | None = None


class TrialOrder(Frozen):
    """The order to a lane to start a trial."""

    spec: TrialSpec
    """The spec, with the paths of the machine that leads the campaign."""
    program: str = ""
    """The program of a command, in the form of :func:`portable_program`."""
    has_corpus: bool = False
    """Whether the machine that leads the campaign has the trial's corpus."""


class Progress(Frozen):
    """The state of a trial.

    The bytes after it are the new part of the curve and, if ``lengths`` is set, the log and the
    result.
    """

    ended: bool = False
    aborted: bool = False
    """Whether it ended without a result because it was cancelled."""
    lost: bool = False
    """Whether its fork server there died, and the trial with it; the error says how."""
    error: TrialError | None = None
    """The error with which it ended without a result, which says nothing about its config."""
    lengths: tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt] | None = None
    """Lengths in bytes of the rest of the curve, the log and the result, which follow this message.

    None while the trial runs, or if they are too long for one answer."""


def said(kind: type[Said], data: bytes, who: str) -> Said:
    """Parse a message from ``who`` as untrusted input.

    :raises MachineryError: if it is not a message of that kind.
    """
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise MachineryError(
            f"the answer of {who} is not a {kind.__name__} ({error.error_count()} faults); install "
            "the same version of autoresearch on every machine"
        ) from error


def with_bytes(head: BaseModel, body: bytes) -> bytes:
    """Join a line of JSON and the bytes after it."""
    return head.model_dump_json().encode() + b"\n" + body


def apart(data: bytes) -> tuple[bytes, bytes]:
    """Split the two parts that :func:`with_bytes` joined."""
    head, _, body = data.partition(b"\n")
    return head, body


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the cluster, as Ray reports it."""

    id: str
    """The node's id, which changes with every start of Ray there."""
    name: str
    cpus: float
    gpus: float
    object_store_bytes: float
