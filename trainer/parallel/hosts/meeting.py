"""Who the hosts are, and which of them this machine is."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Annotated

import psutil
from pydantic import Field

from autoresearch.errors import SettingsError
from autoresearch.values import Frozen, NonNegativeInt
from autoresearch.words import counted

DEFAULT_PORT = 29_400
MOST_HOSTS = 64
LOWEST_PORT, HIGHEST_PORT = 1024, 65_534


class Hosts(Frozen):
    """The hosts in the order given, which is that of their ranks."""

    names: Annotated[tuple[str, ...], Field(min_length=2, max_length=MOST_HOSTS)]
    addresses: tuple[str, ...]
    this: NonNegativeInt
    """The place of this machine among them."""
    interface: str
    """Of this machine, that has its address."""
    port: Annotated[int, Field(ge=LOWEST_PORT, le=HIGHEST_PORT + 1)]
    """On the first host, where all meet; for a second round at the next one."""

    @property
    def count(self) -> int:
        return len(self.names)

    def others(self) -> Iterator[tuple[int, str]]:
        """Place and name of every host but this one."""
        return ((place, name) for place, name in enumerate(self.names) if place != self.this)


def read_hosts(text: str, *, port: int = DEFAULT_PORT, this: str | None = None) -> Hosts:
    """The hosts that ``spark-1,spark-2`` names.

    :param this: which of them this machine is, by its name there; None: the one whose address it
        has.
    :raises SettingsError: where they are fewer than two, or named twice; where a name has no
        address; where none of them is this machine, or more than one.
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
    """The network interface of this machine that has the address.

    :raises SettingsError: where none has it.
    """
    for name, known in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in known):
            return str(name)
    if address.startswith("127."):  # all of 127/8 is the loopback's, and only one of it is listed
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
            raise SettingsError(f"--this-host {this} is none of {', '.join(names)}; name one")
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
    """Only an address of this machine can be listened on."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        try:
            listener.bind((address, 0))
        except OSError:
            return False
    return True
