"""List the RoCE devices, interpret the measured link, and advise what to change.

It is for a pair of Sparks and similar hosts. A QSFP port of a GB10 is 200 Gb/s outside and appears
as two devices, each on a PCIe Gen5 x4 link of about 100 Gb/s (ServeTheHome, "The NVIDIA GB10
ConnectX-7 200GbE networking is really different"). One of them was published to carry 96.2 Gb/s
(iperf3, as delivered) and 98 Gb/s (bus bandwidth of nccl-tests). Both together carried 161 Gb/s
with NCCL_IB_MERGE_NICS=1, and 190 Gb/s (23.74 GB/s: NVIDIA/dgx-spark-playbooks, issue 102, with an
MTU of 9000).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from autoresearch.values import Frozen, NonNegative, PositiveInt
from trainer.parallel.hosts.job import LinkSpeed

INFINIBAND = Path("/sys/class/infiniband")
NET = Path("/sys/class/net")


class RoceDevice(Frozen):
    """A RoCE device and its network interface."""

    name: str
    """Name for NCCL_IB_HCA: rocep1s0f1."""
    interface: str | None
    """Name of its network interface: enp1s0f1np1."""
    is_active: bool
    """Whether its port has a link."""
    rate_gbit_s: NonNegative
    """Rate reported by the port, which may exceed that of its PCIe lanes."""
    mtu: PositiveInt | None
    """MTU of the interface, in bytes."""

    @property
    def port(self) -> str:
        """Suffix shared by the two devices of one QSFP port of a GB10: the PCIe function at the end
        of the name (rocep1s0f1 and roceP2p1s0f1)."""
        found = re.search(r"f\d+$", self.name)
        return found.group() if found else self.name


def roce_devices(infiniband: Path = INFINIBAND, net: Path = NET) -> tuple[RoceDevice, ...]:
    """Return the devices in ``/sys/class/infiniband`` whose first port's link layer is Ethernet, by
    name."""
    try:
        found = sorted(infiniband.iterdir())
    except OSError:
        return ()
    return tuple(
        _device(path, net) for path in found if _said(path / "ports/1/link_layer") == "Ethernet"
    )


def mtu_of(interface: str, net: Path = NET) -> int | None:
    """Return an interface's MTU; None if the kernel does not report it."""
    said = _said(net / interface / "mtu")
    return int(said) if said.isdigit() and int(said) > 0 else None


def _device(path: Path, net: Path) -> RoceDevice:
    try:
        interface = next((one.name for one in sorted((path / "device/net").iterdir())), None)
    except OSError:
        interface = None
    rate = re.match(r"[\d.]+", _said(path / "ports/1/rate"))
    return RoceDevice(
        name=path.name,
        interface=interface,
        is_active="ACTIVE" in _said(path / "ports/1/state"),
        rate_gbit_s=float(rate.group()) if rate else 0.0,
        mtu=mtu_of(interface, net) if interface else None,
    )


def _said(path: Path) -> str:
    try:
        return path.read_text("ascii", errors="replace").strip()
    except OSError:
        return ""


PORT_GBIT_S = 96.0
"""Expected rate of a port."""
GOOD_SHARE = 0.8
JUMBO_MTU = 9000
FASTER = 1.1
"""Ratio from which RoCE counts as faster than TCP."""


class LinkFacts(Frozen):
    """This host's link, as measured and as the kernel lists it."""

    speed: LinkSpeed
    """Speed of the transport that the library chose or was configured to use."""
    nccl_network: str | None
    """IB (RoCE) or Socket; None if NCCL was not used."""
    tcp_gbit_s: NonNegative | None = None
    """The speed with RoCE switched off; None if not measured."""
    interface: str
    """Interface with this host's address."""
    mtu: int | None
    devices: tuple[RoceDevice, ...] = ()

    @property
    def share(self) -> float:
        """Measured share of a port's expected rate."""
        return self.speed.bus_gbit_s / PORT_GBIT_S

    @property
    def active(self) -> tuple[RoceDevice, ...]:
        return tuple(device for device in self.devices if device.is_active)


def advice(facts: LinkFacts) -> tuple[str, ...]:
    """Return one or more sentences, without full stops."""
    found = (*_on_the_network(facts), *_on_the_path(facts))
    if found:
        return found
    return (f"{facts.share:.0%} of a port's expected rate: there is nothing to fix",)


def _on_the_network(facts: LinkFacts) -> Iterator[str]:
    """Advise whether RoCE carried the traffic, and whether that was worth it."""
    if facts.speed.network == "gloo":
        yield (
            "gloo sends by TCP from the CPU and knows no RoCE: this shows that the hosts reach each"
            " other and how fast that way; --device cuda measures what training would get"
        )
        return
    names = ",".join(device.name for device in facts.active)
    if facts.nccl_network == "IB":
        yield from _with_and_without(facts)
    elif not facts.devices:
        yield (
            "this host lists no RoCE device (/sys/class/infiniband), so NCCL sent by TCP; on a"
            " Spark the ports' driver is missing, elsewhere TCP is what there is"
        )
    elif not facts.active:
        listed = ", ".join(device.name for device in facts.devices)
        yield f"no RoCE device has a link ({listed}), so NCCL sent by TCP; see to the cable"
    else:
        yield (
            f"NCCL sent by TCP although {names} can do RoCE; set NCCL_IB_HCA={names}, see that "
            "NCCL_IB_DISABLE is not set, and in a container give it /dev/infiniband and "
            "--ulimit memlock=-1"
        )


def _with_and_without(facts: LinkFacts) -> Iterator[str]:
    if not facts.tcp_gbit_s:
        return
    roce = facts.speed.bus_gbit_s
    times = roce / facts.tcp_gbit_s
    if times >= FASTER:
        yield (
            f"RoCE carried {roce:.3g} Gb/s and TCP {facts.tcp_gbit_s:.3g}, {times:.1f} times as "
            "much: keep NCCL on it"
        )
    else:
        yield (
            f"RoCE carried {roce:.3g} Gb/s and TCP {facts.tcp_gbit_s:.3g}, so RoCE brings nothing "
            "as it is set up: see the same with another NCCL release (one development build stayed "
            "at 24 Gb/s where the release reached 190), the MTU, and NCCL_IB_GID_INDEX for RoCE v2"
        )


def _on_the_path(facts: LinkFacts) -> Iterator[str]:
    """Advise on the path of the traffic, and what limits it."""
    fast = [device.interface for device in facts.active if device.interface]
    if fast and facts.interface not in fast:
        yield (
            f"this host's address is on {facts.interface}, and the fast ports are "
            f"{', '.join(fast)}: name the hosts by the addresses of those"
        )
    narrow = facts.mtu is not None and facts.mtu < JUMBO_MTU
    if facts.share < GOOD_SHARE and narrow and fast:
        yield (
            f"the MTU of {facts.interface} is {facts.mtu}: set {JUMBO_MTU} on both ends and "
            f"whatever is between (ip link set dev {facts.interface} mtu {JUMBO_MTU})"
        )
    twins = _twins(facts.active)
    if twins and facts.nccl_network == "IB" and GOOD_SHARE <= facts.share < 1.25:
        names = ",".join(device.name for device in twins)
        yield (
            f"{facts.share:.0%} of a port's {PORT_GBIT_S:g} Gb/s is one of the two devices that a "
            f"port shows as; NCCL_IB_HCA={names} and NCCL_IB_MERGE_NICS=1 use both"
        )


def _twins(active: Sequence[RoceDevice]) -> tuple[RoceDevice, ...]:
    """Return the first two devices of one port."""
    for device in active:
        both = tuple(other for other in active if other.port == device.port)
        if len(both) > 1:
            return both
    return ()
