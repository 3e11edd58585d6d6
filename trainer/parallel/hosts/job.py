"""Define the inputs and outputs of a host's worker: JSON files in one scratch directory."""

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
"""Seconds between two heartbeats of a host."""

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
    """Work of one host among the others."""

    hosts: Hosts
    job: ParallelJob
    """Job whose layouts have a rank on every host."""
    trains: bool = True
    """False: only the link is measured."""
    meet_s: Positive
    """Rendezvous timeout in seconds."""
    message_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 34)]
    """Size of the large all-reduce that measures the link."""

    def fingerprint(self) -> str:
        """Return a text that is equal on all hosts with the same command, without this host's own
        fields."""
        command = self.model_dump_json(
            exclude={"hosts": {"this", "interface"}, "job": {"deadline_s"}, "meet_s": True}
        )
        return hashlib.sha256(command.encode()).hexdigest()


class LinkSpeed(Frozen):
    """Speed of the hosts' link, by all-reduces of all hosts at once."""

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
        """10^9 bits per second that each host sends and receives at once: ``size / time × 2 (n - 1)
        / n``, which a ring all-reduce moves (nccl-tests, doc/PERFORMANCE.md)."""
        share = 2 * (self.hosts - 1) / self.hosts
        return 8 * self.message_bytes / self.seconds * share / 1e9

    def gradient_s(self, params: float, bytes_each: int = 4) -> float:
        """Return the seconds of averaging the gradients of so many parameters over the hosts."""
        share = 2 * (self.hosts - 1) / self.hosts
        return 8 * params * bytes_each * share / (1e9 * self.bus_gbit_s)


class Watched(Frozen):
    """A worker's observations of the other hosts, by this machine's clock."""

    at_s: Finite
    """Time of writing: ``time.monotonic``, which one machine's processes share."""
    seen_s: dict[int, Finite]
    """Last heartbeat of each host, by its index."""
    failed: dict[int, str]
    """The host that failed first, and its last message."""
    has_met: bool = False
    """Whether all hosts have arrived."""


def watched(scratch: Path) -> Watched | None:
    """Return the latest observations; None before the first."""
    try:
        return Watched.model_validate_json((scratch / WATCH_FILE).read_bytes())
    except FileNotFoundError:
        return None
