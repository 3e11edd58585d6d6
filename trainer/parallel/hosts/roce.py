"""List this machine's RoCE devices, as the kernel reports them."""

from __future__ import annotations

import re
from pathlib import Path

from autoresearch.values import Frozen, NonNegative, PositiveInt

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
