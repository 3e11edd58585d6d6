"""What a driver and its lanes on other machines say to each other: JSON, and bytes behind it."""

from __future__ import annotations

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
from trainer.isolation.trial_files import TrialError
from trainer.spec import TrialSpec

Line = Annotated[PlainText, Field(max_length=500)]
"""One line about a node."""

PIECE_BYTES = 4 << 20
"""The most of a file that one answer carries; less is its end, once the trial has ended."""

Said = TypeVar("Said", bound=BaseModel)


class LaneOrder(Frozen):
    """How a lane is to be opened on its node."""

    token: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    """Of this opening and no other: names its directory there."""
    entry: str
    """``module:function`` that a trial runs."""
    allow_unsandboxed: bool = False
    fork_server: bool = True
    share: NonNegativeInt = 0
    """Which part of the node's cores is this lane's own …"""
    shares: PositiveInt | None = None
    """… of how many; None: all of them."""
    needs: Needs | None = None
    """What must be there where a command trains; None where the built-in trainer does."""
    data_dir: str | None = None
    """Where the node keeps trials at work; None: its own cache folder."""
    script_sha256: str | None = None
    """Of the archive that was sent for a command; None where the built-in trainer trains."""
    lease_s: Positive
    """A trial that the driver has not asked about for so long is ended, and the lane with it."""


class NodeFacts(Frozen):
    """What a machine of the cluster is and has, as a process on it found."""

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
    """That a process may use."""
    memory_gib: NonNegative
    confines: bool
    """Whether its kernel has what confines a trial to its directory."""
    sandbox: Line
    directory: Line
    """Where it keeps trials at work."""
    disk: Line
    """Why nothing can be written there; empty where it can."""
    free_gib: NonNegative
    clock_s: NonNegative
    """Seconds since 1970."""
    lacks: Line = ""
    """What of an order's needs is not there, and what to do; empty where all is."""
    memory_monitor: Line
    """What the node's Ray was told of its memory monitor; empty where it was told nothing."""

    def kind(self, device: str) -> str:
        """What makes two machines alike for trials on ``device``."""
        if device.startswith("cuda"):
            return self.gpus[0] if self.gpus else "no GPU"
        return self.cpu


class Opened(Frozen):
    """What became of an opening: a lane, or why there is none."""

    home: str = ""
    """The directory of this opening on the node: each trial runs in one of its own below it."""
    described: Line = ""
    """How trials are confined and started there."""
    refusal: TrialError | None = None


class TrialOrder(Frozen):
    """A trial that a lane is to start."""

    spec: TrialSpec
    """With the paths of the machine that leads the campaign."""
    program: str = ""
    """With which a command begins, as :func:`portable_program` says it."""
    has_corpus: bool = False
    """Whether the trial's corpus is there."""


class Progress(Frozen):
    """How far a trial has come. What its curve has gained stands behind it, as bytes; and where it
    is whole, its log and its result behind that."""

    ended: bool = False
    aborted: bool = False
    """It ended without a result because it was cancelled."""
    lost: bool = False
    """Its fork server there died and took it along; the error says how."""
    error: TrialError | None = None
    """It ended without a result, for a reason that says nothing about its config."""
    lengths: tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt] | None = None
    """It has ended, and all that is left of it stands behind this: how much of that is the curve's,
    the log's and the result's. None where it runs, or where that is too much for one answer."""


def said(kind: type[Said], data: bytes, who: str) -> Said:
    """What ``who`` said, read as from a stranger.

    :raises MachineryError: where it is nothing of that kind.
    """
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise MachineryError(
            f"what {who} said is no {kind.__name__} ({error.error_count()} faults); install the"
            " same version of autoresearch on every machine"
        ) from error


def with_bytes(head: BaseModel, body: bytes) -> bytes:
    """A line of JSON, and bytes behind it."""
    return head.model_dump_json().encode() + b"\n" + body


def apart(data: bytes) -> tuple[bytes, bytes]:
    """The two that :func:`with_bytes` put together."""
    head, _, body = data.partition(b"\n")
    return head, body
