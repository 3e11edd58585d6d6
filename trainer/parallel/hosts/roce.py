"""The devices of this machine that speak RoCE, as the kernel lists them."""

from __future__ import annotations

import re
from pathlib import Path

from autoresearch.values import Frozen, NonNegative, PositiveInt

INFINIBAND = Path("/sys/class/infiniband")
NET = Path("/sys/class/net")


class RoceDevice(Frozen):
    """One of them, and the network interface over which it works."""

    name: str
    """As NCCL_IB_HCA takes it: rocep1s0f1."""
    interface: str | None
    """As addresses are given to it: enp1s0f1np1."""
    is_active: bool
    """Whether its port has a link."""
    rate_gbit_s: NonNegative
    """As the port says, which may be more than its PCIe lanes carry."""
    mtu: PositiveInt | None
    """Of the interface, bytes."""

    @property
    def port(self) -> str:
        """Equal for the two devices that a GB10 shows for each of its QSFP ports: the PCIe function
        at the end of the name (rocep1s0f1 and roceP2p1s0f1)."""
        found = re.search(r"f\d+$", self.name)
        return found.group() if found else self.name


def roce_devices(infiniband: Path = INFINIBAND, net: Path = NET) -> tuple[RoceDevice, ...]:
    """Those of ``/sys/class/infiniband`` whose first port's link layer is Ethernet, by name."""
    try:
        found = sorted(infiniband.iterdir())
    except OSError:
        return ()
    return tuple(
        _device(path, net) for path in found if _said(path / "ports/1/link_layer") == "Ethernet"
    )


def mtu_of(interface: str, net: Path = NET) -> int | None:
    """None where the kernel does not say."""
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
