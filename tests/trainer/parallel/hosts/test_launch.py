"""Test jobs over several hosts: how they meet, are launched, and are advised."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import SettingsError
from tests.support.host_jobs import host_job
from trainer.parallel.hosts import launch
from trainer.parallel.hosts.advice import LinkFacts, RoceDevice, advice, mtu_of, roce_devices
from trainer.parallel.hosts.job import (
    BEAT_S,
    FAILURE_FILE,
    WATCH_FILE,
    Hosts,
    LinkSpeed,
    Network,
    Watched,
    read_hosts,
)

HOSTS = ("spark-1", "spark-2", "spark-3")


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a worker that stays silent and keeps running."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("silent_s", [2.6, 3.3, 3.9])
def test_the_first_hosts_giving_up_does_not_hide_who_was_lost(
    silent_s: float,
    waiting: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The third host is lost, and a collective fails here at once. The first host notices and ends
    its store before this host does, which polled last ``silent_s`` after the loss."""
    hosts = Hosts(names=HOSTS, addresses=HOSTS, this=1, interface="fast0", port=29400)
    now = 1000.0
    last_look = now + silent_s
    seen = Watched(at_s=last_look, seen_s={0: last_look, 2: now}, failed={})
    (tmp_path / WATCH_FILE).write_text(seen.model_dump_json())
    (tmp_path / FAILURE_FILE).write_text("RuntimeError: Connection closed by peer")

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    (failed,) = launch._Running(host_job(hosts), tmp_path, waiting).results()
    assert isinstance(failed, launch.HostsFailed)
    assert failed.message.startswith("spark-3 was lost: no sign of life for ")
    assert now < 1000 + 9 * BEAT_S


def test_this_machine_is_the_host_whose_address_it_has() -> None:
    hosts = read_hosts("198.51.100.1, 127.0.0.1")  # the first address is unassigned (RFC 5737)
    assert hosts.this == 1
    assert hosts.addresses == ("198.51.100.1", "127.0.0.1")
    assert hosts.interface == "lo"
    assert list(hosts.others()) == [(0, "198.51.100.1")]


def test_where_several_are_this_machine_a_person_says_which() -> None:
    assert read_hosts("127.0.0.1,127.0.0.2", this="127.0.0.2").this == 1


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("127.0.0.1", {}),
        ("127.0.0.1,", {}),
        ("127.0.0.1,localhost", {}),
        ("127.0.0.1,no-such-host.invalid", {}),
        ("198.51.100.1,198.51.100.2", {}),
        ("127.0.0.1,127.0.0.2", {}),
        ("127.0.0.1,127.0.0.2", {"this": "spark-9"}),
        ("198.51.100.1,127.0.0.1", {"port": 80}),
    ],
)
def test_what_names_no_hosts_is_one_sentence(text: str, more: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as refused:
        read_hosts(text, **more)
    assert "\n" not in str(refused.value)


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
