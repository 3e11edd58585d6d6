"""Messages between a driver and its lanes on other machines, which Ray pickles.

So whoever controls one of the machines can run code on the others, as with any use of Ray. What a
trial wrote crosses as bytes, and its result as the value that the node's executor has checked.
"""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass

from autoresearch.errors import AutoresearchError
from autoresearch.values import Frozen
from trainer.spec import Measured, TrialFailed

PIECE_BYTES = 4 << 20
"""Size limit of an answer's part of a trial's file."""


@dataclass(frozen=True, slots=True)
class LaneOrder:
    """Settings for opening a lane on its node."""

    token: str
    """The unique name of this opening, which also names its directory there."""
    entry: str
    """``module:function`` that a trial runs."""
    lease_s: float
    """Time without a request from the driver after which the node ends the trial and the lane."""
    head: str = socket.gethostname()
    """The head's host name, which keeps the caches of several heads apart."""
    python: str = sys.executable
    """The head's Python."""
    allow_unsandboxed: bool = False
    share: int = 0
    """The index of this lane's share of the node's cores."""
    shares: int | None = None
    """The number of shares; None: this lane has all cores."""
    script_sha256: str = ""
    """The hash of the archive that was sent for a command; empty for the built-in trainer."""


class NodeFacts(Frozen):
    """Facts about a machine of the cluster, found by a process on it."""

    code: str
    """Version and hash of this product's code."""
    torch: str
    cpu: str
    """The processor's own name."""
    gpus: tuple[str, ...]
    """The visible GPUs' own names; none on CPU."""
    cores: int
    """The number of cores that a process may use."""
    memory_gib: float
    confines: bool
    """Whether its kernel can confine a trial to its directory."""
    sandbox: str
    directory: str
    """The directory for running trials."""
    disk: str
    """The reason why nothing can be written there; empty if it can."""
    free_gib: float
    lacks: str = ""
    """The missing ones of a command's needs, and what to do; empty if nothing is missing."""

    def kind(self, device: str) -> str:
        """Return the kind of the machine: equal kinds are alike for trials on ``device``."""
        if device.startswith("cuda"):
            return self.gpus[0] if self.gpus else "no GPU"
        return self.cpu


@dataclass(frozen=True, slots=True)
class Watched:
    """The state of a trial."""

    curve: bytes
    """The new part of its curve."""
    end: Measured | TrialFailed | AutoresearchError | None = None
    """Its result, or the error with which it ended without one; None while it runs or while more
    of its curve is left."""
    log: bytes = b""
    """Its whole log, at its end."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the cluster, as Ray reports it."""

    id: str
    """The node's id, which changes with every start of Ray there."""
    name: str
    cpus: float
    gpus: float
    address: str = ""
