"""Advice on links agrees with published figures and detects known misconfigurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer.parallel.hosts.advice import LinkFacts, RoceDevice, advice, mtu_of, roce_devices
from trainer.parallel.hosts.job import LinkSpeed, Network

MIB = 1 << 20
FIRST = RoceDevice(
    name="rocep1s0f1", interface="enp1s0f1np1", is_active=True, rate_gbit_s=200, mtu=9000
)
SECOND = RoceDevice(
    name="roceP2p1s0f1", interface="enP2p1s0f1np1", is_active=True, rate_gbit_s=200, mtu=9000
)


def speed(gbit_s: float, network: Network = "NCCL", hosts: int = 2) -> LinkSpeed:
    size = 256 * MIB
    share = 2 * (hosts - 1) / hosts
    return LinkSpeed(
        network=network,
        hosts=hosts,
        message_bytes=size,
        seconds=8 * size * share / (gbit_s * 1e9),
        repeats=5,
        latency_us=20,
    )


def facts(gbit_s: float, **more: Any) -> LinkFacts:
    given = {
        "speed": speed(gbit_s),
        "nccl_network": "IB",
        "interface": "enp1s0f1np1",
        "mtu": 9000,
        "devices": (FIRST,),
    }
    return LinkFacts.model_validate(given | more)


@pytest.mark.parametrize("hosts", [2, 4])
def test_the_bus_bandwidth_is_that_of_nccl_tests(hosts: int) -> None:
    """All-reduce: algorithm bandwidth × 2 (n - 1) / n."""
    measured = LinkSpeed(
        network="NCCL",
        hosts=hosts,
        message_bytes=10**9,
        seconds=0.5,
        repeats=5,
        latency_us=20,
    )
    assert measured.bus_gbit_s == pytest.approx(16 * 2 * (hosts - 1) / hosts)


def test_gradients_take_their_bytes_over_the_bus() -> None:
    """The case is 354.6 M parameters in fp32 between two hosts at 96 Gb/s."""
    assert speed(96).gradient_s(354.6e6) == pytest.approx(354.6e6 * 32 / 96e9)


def test_one_device_of_a_port_as_published_is_told_of_the_other() -> None:
    (said,) = advice(facts(98, devices=(FIRST, SECOND)))
    assert "NCCL_IB_HCA=rocep1s0f1,roceP2p1s0f1 and NCCL_IB_MERGE_NICS=1" in said
    assert said.startswith("102% of a port's 96 Gb/s")


def test_both_devices_as_published_leave_nothing_to_mend() -> None:
    (said,) = advice(facts(161, devices=(FIRST, SECOND)))
    assert said == "168% of a port's expected rate: there is nothing to fix"


def test_devices_of_two_ports_are_no_twins() -> None:
    other_port = SECOND.model_copy(update={"name": "rocep1s0f0"})
    (said,) = advice(facts(98, devices=(FIRST, other_port)))
    assert "nothing to fix" in said


def test_the_management_port_is_seen_through() -> None:
    """NVIDIA's playbook sets this trap: collectives use the 10 Gb/s port, without an error."""
    lines = advice(facts(9.4, nccl_network="Socket", interface="enP7s7", mtu=1500))
    assert (
        "NCCL sent by TCP although rocep1s0f1 can do RoCE; set NCCL_IB_HCA=rocep1s0f1" in lines[0]
    )
    assert "address is on enP7s7, and the fast ports are enp1s0f1np1" in lines[1]


def test_a_small_mtu_is_named_where_the_link_is_slow_and_only_there() -> None:
    slow = advice(facts(24, tcp_gbit_s=20, mtu=1500))
    assert any("the MTU of enp1s0f1np1 is 1500: set 9000" in line for line in slow)
    assert not any("MTU of" in line for line in advice(facts(95, tcp_gbit_s=50, mtu=1500)))
    assert not any("MTU of" in line for line in advice(facts(24, tcp_gbit_s=20)))


def test_what_roce_brings_is_its_measured_ratio_to_tcp() -> None:
    better = advice(facts(95, tcp_gbit_s=38))
    assert better == ("RoCE carried 95 Gb/s and TCP 38, 2.5 times as much: keep NCCL on it",)
    worse = advice(facts(24, tcp_gbit_s=60))
    assert "so RoCE brings nothing as it is set up" in worse[0]


def test_no_device_and_no_cable_are_told_apart() -> None:
    none = advice(facts(9, nccl_network="Socket", devices=()))
    assert "lists no RoCE device" in none[0]
    down = FIRST.model_copy(update={"is_active": False})
    unplugged = advice(facts(9, nccl_network="Socket", devices=(down,)))
    assert "no RoCE device has a link (rocep1s0f1)" in unplugged[0]


def test_gloo_says_nothing_of_roce() -> None:
    lines = advice(facts(9, speed=speed(9, "gloo"), nccl_network=None))
    assert "--device cuda" in lines[0]


def tree(root: Path, name: str, *, layer: str, state: str, interface: str | None) -> None:
    """Write a device as the kernel lists it: drivers/infiniband/core/sysfs.c."""
    port = root / "infiniband" / name / "ports" / "1"
    port.mkdir(parents=True)
    (port / "link_layer").write_text(f"{layer}\n")
    (port / "state").write_text(f"{state}\n")
    (port / "rate").write_text("200 Gb/sec (4X HDR)\n")
    if interface:
        (root / "infiniband" / name / "device/net" / interface).mkdir(parents=True)
        (root / "net" / interface).mkdir(parents=True)
        (root / "net" / interface / "mtu").write_text("1500\n")


def test_the_kernels_list_is_read(tmp_path: Path) -> None:
    tree(tmp_path, "rocep1s0f1", layer="Ethernet", state="4: ACTIVE", interface="enp1s0f1np1")
    tree(tmp_path, "rocep1s0f0", layer="Ethernet", state="1: DOWN", interface=None)
    tree(tmp_path, "mlx5_0", layer="InfiniBand", state="4: ACTIVE", interface="ib0")
    found = roce_devices(tmp_path / "infiniband", tmp_path / "net")
    assert [device.name for device in found] == ["rocep1s0f0", "rocep1s0f1"]
    assert found[1] == FIRST.model_copy(update={"mtu": 1500})
    assert not found[0].is_active
    assert found[0].interface is None
    assert roce_devices(tmp_path / "nowhere", tmp_path / "net") == ()


def test_the_loopbacks_mtu_is_what_the_kernel_says() -> None:
    assert mtu_of("lo") == int(Path("/sys/class/net/lo/mtu").read_text())
    assert mtu_of("nowhere0") is None
