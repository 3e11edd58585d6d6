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


SOCKET: dict[str, Any] = {"nccl_network": "Socket"}


@pytest.mark.parametrize(
    ("gbit_s", "more", "said"),
    [
        # Published: one device of a port, and both.
        (98, {"devices": (FIRST, SECOND)}, ["=rocep1s0f1,roceP2p1s0f1 and NCCL_IB_MERGE_NICS=1"]),
        (161, {"devices": (FIRST, SECOND)}, ["168%"]),
        (98, {"devices": (FIRST, SECOND.model_copy(update={"name": "rocep1s0f0"}))}, ["102%"]),
        # A trap of NVIDIA's playbook: collectives use the 10 Gb/s port, without an error.
        (
            9.4,
            {**SOCKET, "interface": "enP7s7", "mtu": 1500},
            ["NCCL_IB_HCA=rocep1s0f1", "enP7s7, and the fast ports are enp1s0f1np1", "mtu 9000"],
        ),
        (24, {"tcp_gbit_s": 20, "mtu": 1500}, ["1.2 times", "mtu 9000"]),
        (95, {"tcp_gbit_s": 50, "mtu": 1500}, ["1.9 times"]),
        (24, {"tcp_gbit_s": 20}, ["1.2 times"]),
        (24, {"tcp_gbit_s": 60}, ["NCCL_IB_GID_INDEX"]),
        (9, {**SOCKET, "devices": ()}, ["/sys/class/infiniband"]),
        (9, {**SOCKET, "devices": (FIRST.model_copy(update={"is_active": False}),)}, ["(rocep1s0"]),
        (9, {"speed": speed(9, "gloo"), "nccl_network": None}, ["--device cuda"]),
    ],
)
def test_what_is_wrong_with_a_link_is_advised_and_nothing_else(
    gbit_s: float, more: dict[str, Any], said: list[str]
) -> None:
    for line, named in zip(advice(facts(gbit_s, **more)), said, strict=True):
        assert named in line


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
    assert mtu_of("nowhere0", tmp_path / "net") is None
