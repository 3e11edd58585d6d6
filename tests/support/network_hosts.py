"""Simulate hosts for a test: network namespaces of the kernel, connected by a bridge.

Each has its own interface, address and cable, and reaches only the others, so its processes see the
network as on a separate host. They share one machine's processor and disk. Root may create them,
and a container's root often may not.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NUMBERS = itertools.count()


class Wire:
    """Connect this many hosts to one bridge."""

    def __init__(self, count: int) -> None:
        self._names = [f"art{os.getpid()}-{next(_NUMBERS)}" for _ in range(count + 1)]
        self.hub, *self.hosts = self._names
        self.addresses = [f"10.213.7.{place + 1}" for place in range(count)]
        self._started: list[subprocess.Popen[str]] = []

    @property
    def text(self) -> str:
        """The addresses in the form of --hosts."""
        return ",".join(self.addresses)

    def make(self) -> None:
        for name in self._names:
            _ip("netns", "add", name)
        _ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.hub, "link", "set", "bridge", "up")
        for place, (name, address) in enumerate(zip(self.hosts, self.addresses, strict=True)):
            cable = ("link", "add", f"port{place}", "type", "veth", "peer", "name", "fast0")
            _ip("-n", self.hub, *cable, "netns", name)
            _ip("-n", self.hub, "link", "set", f"port{place}", "master", "bridge", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "fast0")
            _ip("-n", name, "link", "set", "fast0", "up")

    def unmake(self) -> None:
        for process in self._started:
            process.kill()
            if process.stdout is not None and not process.stdout.closed:
                process.communicate()
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    def limit(self, rate: str) -> None:
        """Limit each host's sending rate, for example to ``1gbit``."""
        for name in self.hosts:
            shaping = f"qdisc add dev fast0 root tbf rate {rate} burst 256kb latency 100ms"
            subprocess.run(
                ["ip", "netns", "exec", name, "tc", *shaping.split()],
                check=True,
                capture_output=True,
            )

    def pull_the_cable(self, place: int) -> None:
        _ip("-n", self.hub, "link", "set", f"port{place}", "down")

    def start(self, place: int, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
        """Start ``autoresearch`` on a host."""
        inside = ["ip", "netns", "exec", self.hosts[place]]
        process = subprocess.Popen(
            [*inside, sys.executable, "-m", "autoresearch", *arguments],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process


@contextmanager
def wired(count: int) -> Iterator[Wire]:
    wire = Wire(count)
    try:
        wire.make()
        yield wire
    finally:
        wire.unmake()


def why_not() -> str | None:
    """Return why network namespaces cannot be created here, or None."""
    if os.geteuid() != 0:
        return "network namespaces are made as root only"
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    try:
        with wired(1):
            return None
    except subprocess.CalledProcessError as error:
        return f"root may not make network namespaces here: {error.stderr.strip()[-200:]}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
