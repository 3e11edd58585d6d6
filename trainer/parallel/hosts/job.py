"""Define the hosts of a job, and the inputs and outputs of each one's worker.

Those are JSON files in one scratch directory.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import psutil
from pydantic import Field

from autoresearch.errors import SettingsError
from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, Positive, PositiveInt
from autoresearch.words import counted
from trainer.parallel.job import ParallelJob

DEFAULT_PORT = 29_400
MOST_HOSTS = 64
LOWEST_PORT, HIGHEST_PORT = 1024, 65_534


class Hosts(Frozen):
    """Hosts in the given order, which is that of their ranks."""

    names: Annotated[tuple[str, ...], Field(min_length=2, max_length=MOST_HOSTS)]
    addresses: tuple[str, ...]
    this: NonNegativeInt
    """Index of this machine among them."""
    interface: str
    """This machine's interface with its address."""
    port: Annotated[int, Field(ge=LOWEST_PORT, le=HIGHEST_PORT + 1)]
    """Rendezvous port on the first host; a second round uses the next one."""

    @property
    def count(self) -> int:
        return len(self.names)

    def others(self) -> Iterator[tuple[int, str]]:
        """Yield index and name of every host but this one."""
        return ((place, name) for place, name in enumerate(self.names) if place != self.this)


def read_hosts(text: str, *, port: int = DEFAULT_PORT, this: str | None = None) -> Hosts:
    """Parse hosts like ``spark-1,spark-2``.

    :param this: this machine's name in the list; None: the one with its address.
    :raises SettingsError: if there are fewer than two or duplicates; if a name has no address; if
        none of them, or more than one, is this machine.
    """
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(names) < 2 or len(names) > MOST_HOSTS:
        raise SettingsError(
            f"--hosts {text!r:.80} names {counted(len([n for n in names if n]), 'host')}, and 2 to "
            f"{MOST_HOSTS} are needed; write them like 10.0.0.1,10.0.0.2, the same on every host"
        )
    addresses = tuple(_address(name) for name in names)
    if len(set(addresses)) < len(addresses):
        raise SettingsError(
            f"--hosts {text!r:.80} names one host twice ({', '.join(addresses)}); name each once"
        )
    if not LOWEST_PORT <= port <= HIGHEST_PORT:
        raise SettingsError(
            f"--port is {port}, and should be from {LOWEST_PORT} to {HIGHEST_PORT}; choose another"
        )
    place = _place(names, addresses, this)
    return Hosts(
        names=names,
        addresses=addresses,
        this=place,
        interface=interface_of(addresses[place]),
        port=port,
    )


def interface_of(address: str) -> str:
    """Return this machine's network interface with the address.

    :raises SettingsError: if none has it.
    """
    for name, known in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in known):
            return str(name)
    # all of 127/8 belongs to the loopback, which lists only one address
    if address.startswith("127."):
        return interface_of("127.0.0.1")
    raise SettingsError(
        f"no network interface of this machine has the address {address}; see `ip address`"
    )


def _address(name: str) -> str:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SettingsError(
            f"the host {name!r:.80} has no address that this machine knows ({error.strerror}); "
            "write its address instead"
        ) from error
    return str(found[0][4][0])


def _place(names: tuple[str, ...], addresses: tuple[str, ...], this: str | None) -> int:
    if this is not None:
        if this not in names:
            raise SettingsError(f"--this-host {this} is not one of {', '.join(names)}; name one")
        return names.index(this)
    ours = [place for place, address in enumerate(addresses) if _is_ours(address)]
    if len(ours) == 1:
        return ours[0]
    which = "none" if not ours else ", ".join(names[place] for place in ours)
    raise SettingsError(
        f"of the hosts {', '.join(names)} this machine is {which} by its addresses, and should be "
        "one; "
        + (
            "say which with --this-host"
            if ours
            else "give each host's address on the link that the hosts share (`ip address` there)"
        )
    )


def _is_ours(address: str) -> bool:
    """Return whether an address is this machine's: only those can be listened on."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        try:
            listener.bind((address, 0))
        except OSError:
            return False
    return True


LINK_FILE = "link.json"
WATCH_FILE = "watch.json"
FAILURE_FILE = "failure.txt"
LOG_FILE = "worker.log"

Network: TypeAlias = Literal["gloo", "NCCL"]

BEAT_S = 1.0
"""Seconds between two heartbeats of a host."""


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


def watched(scratch: Path) -> Watched | None:
    """Return the latest observations; None before the first."""
    try:
        return Watched.model_validate_json((scratch / WATCH_FILE).read_bytes())
    except FileNotFoundError:
        return None
