"""What a host's worker is told, and what it tells. Files of JSON in one scratch directory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from autoresearch.values import Finite, Frozen, NonNegative, Positive, PositiveInt
from trainer.parallel.hosts.meeting import Hosts
from trainer.parallel.job import JOB_FILE, LOSSES_FILE, ParallelJob

LINK_FILE = "link.json"
WATCH_FILE = "watch.json"
FAILURE_FILE = "failure.txt"
LOG_FILE = "worker.log"

Network: TypeAlias = Literal["gloo", "NCCL"]

BEAT_S = 1.0
"""Between two signs of life of a host."""

__all__ = [
    "BEAT_S",
    "FAILURE_FILE",
    "JOB_FILE",
    "LINK_FILE",
    "LOG_FILE",
    "LOSSES_FILE",
    "WATCH_FILE",
    "HostJob",
    "LinkSpeed",
    "Network",
    "Watched",
    "watched",
]


class HostJob(Frozen):
    """What one host is to do among the others."""

    hosts: Hosts
    job: ParallelJob
    """Its layouts have a rank on every host."""
    trains: bool = True
    """False: only the link is measured."""
    meet_s: Positive
    """How long the hosts wait for each other to come."""
    message_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 34)]
    """Of the large all-reduce by which the link is measured."""

    def fingerprint(self) -> str:
        """Equal on all hosts that were given the same command: who this one is left out."""
        told = self.model_dump_json(
            exclude={"hosts": {"this", "interface"}, "job": {"deadline_s"}, "meet_s": True}
        )
        return hashlib.sha256(told.encode()).hexdigest()


class LinkSpeed(Frozen):
    """What the hosts' link was measured at, by all-reduces of all hosts at once."""

    network: Network
    hosts: PositiveInt
    message_bytes: PositiveInt
    seconds: Positive
    """Median of one all-reduce of ``message_bytes``, on the slowest host."""
    repeats: PositiveInt
    latency_us: NonNegative
    """Median of an all-reduce of one number."""

    @property
    def bus_gbit_s(self) -> float:
        """10^9 bits a second that each host sends, and receives at once: ``size / time × 2 (n - 1)
        / n``, which all-reduce by a ring moves (nccl-tests, doc/PERFORMANCE.md)."""
        share = 2 * (self.hosts - 1) / self.hosts
        return 8 * self.message_bytes / self.seconds * share / 1e9

    def gradient_s(self, params: float, bytes_each: int = 4) -> float:
        """Seconds of averaging the gradients of so many parameters over the hosts."""
        share = 2 * (self.hosts - 1) / self.hosts
        return 8 * params * bytes_each * share / (1e9 * self.bus_gbit_s)


class Watched(Frozen):
    """What a worker's watch has seen of the other hosts; by the clock of this machine."""

    at_s: Finite
    """When this was written: ``time.monotonic``, which one machine's processes share."""
    seen_s: dict[int, Finite]
    """By a host's place: when it last gave a sign of life."""
    failed: dict[int, str]
    """The host that failed first, and its last words."""
    has_met: bool = False
    """All had come."""


def watched(scratch: Path) -> Watched | None:
    """The latest; None before the first."""
    try:
        return Watched.model_validate_json((scratch / WATCH_FILE).read_bytes())
    except FileNotFoundError:
        return None
