"""Provide small Ray clusters of several nodes on this machine, whose processes can be killed."""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.ports import free_port
from tests.support.waiting import wait_until

os.environ["RAY_AUTH_MODE"] = "token"
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # a driver inherits its parent's
"""The variables are for drivers in this process and below it; Ray reads both when it first
connects."""
_STORE_BYTES = 80_000_000
"""Ray takes at least 75 MB."""
_MARK = "LC_CLUSTER"
"""A variable in the environment of all the cluster's processes, down to its trials. Its name looks
like a locale's, so trials may have it."""


class LocalNode:
    """Hold a node: everything that one ``ray start`` started."""

    def __init__(self, name: str, arguments: list[str], environ: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
            *("--disable-usage-stats", "--include-log-monitor=false"),
            f"--node-name={name}",
            f"--object-store-memory={_STORE_BYTES}",
            *arguments,
        ]
        with log.open("w") as said:
            self._process = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    @property
    def started(self) -> bool:
        return "Ray runtime started" in self.log.read_text()

    @property
    def ended(self) -> bool:
        """Whether Ray gave it up, as it does when one of its processes ends."""
        return self._process.poll() is not None

    def processes(self, word: str = "") -> list[psutil.Process]:
        """Return the live processes below it, with ``word`` in their command lines."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if word in " ".join(process.cmdline()) and process.status() != "zombie":
                        found.append(process)
        return found

    @property
    def raylet(self) -> psutil.Process:
        return next(p for p in self.processes() if Path(p.cmdline()[0]).name == "raylet")

    def actors(self) -> list[psutil.Process]:
        """Return the processes of its lanes."""
        return self.processes("ray::NodeLane")

    def lose(self) -> None:
        """Kill everything at once, as a power loss would, with the processes that trials left."""
        if self.ended:
            return
        doomed = [psutil.Process(self._process.pid), *self.processes()]
        for process in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()  # so that no process has time to react
        for process in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()


class LocalCluster:
    """Hold a head without CPUs, and the nodes that are added."""

    def __init__(self, *, with_token: bool = True) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets: short paths
        self._port = free_port()
        self._environ = {
            **os.environ,
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_TMPDIR": str(self._directory),
            "RAY_AUTH_MODE": "token" if with_token else "disabled",
            "AUTORESEARCH_DATA_DIR": str(self.data_dir),
            _MARK: str(self._directory),
        }
        self.nodes: dict[str, LocalNode] = {}
        self._head = [
            *("--head", f"--port={self._port}", "--num-cpus=0", "--include-dashboard=false"),
            *(f"--temp-dir={self._directory}", f"--ray-client-server-port={free_port()}"),
            f"--dashboard-port={free_port()}",
        ]
        self._starts = 0
        self._start("head", self._head)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def data_dir(self) -> Path:
        """The folder in which its nodes keep received files."""
        return self._directory / "data"

    def add(self, name: str, cpus: int = 2) -> LocalNode:
        """Add a node, and wait until it has joined."""
        return self._start(name, [f"--address={self.address}", f"--num-cpus={cpus}"])

    def _start(self, name: str, arguments: list[str]) -> LocalNode:
        self._starts += 1
        log = self._directory / f"{name}-{self._starts}.start"
        node = LocalNode(name, arguments, self._environ, log)
        self.nodes[name] = node
        wait_until(lambda: node.ended or node.started)  # two at once would take one socket's name
        assert node.started, log.read_text()
        return node

    def begin_anew(self) -> None:
        """End what is left of the cluster, and start Ray again on all nodes, at the same
        address."""
        names = [name for name in self.nodes if name != "head"]
        for node in self.nodes.values():
            node.lose()
        self._start("head", self._head)
        for name in names:
            self.add(name)

    def trial_processes(self) -> list[psutil.Process]:
        """Return fork servers and their descendants, wherever they are in the tree of processes."""
        return [p for p in self._processes() if "trainer.isolation.forkserver" in _command(p)]

    def close(self) -> None:
        for node in reversed(self.nodes.values()):
            node.lose()
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _processes(self) -> list[psutil.Process]:
        """Return the live processes that the cluster started, orphans included."""
        mark, named = f"{_MARK}={self._directory}", str(self._directory)
        return [
            process
            for process in psutil.process_iter()
            if mark in _environ(process) or named in _command(process)
        ]


def _environ(process: psutil.Process) -> list[str]:
    try:
        return Path(f"/proc/{process.pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def _command(process: psutil.Process) -> str:
    """Return a process's command line, which is empty if it has ended or was not reaped yet."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@contextlib.contextmanager
def local_cluster(*names: str, cpus: int = 2, with_token: bool = True) -> Iterator[LocalCluster]:
    """Yield a cluster of a head and these nodes; skip the test if Ray is not installed.

    :param with_token: whether the cluster requires this process's token.
    """
    pytest.importorskip("ray", reason="Ray does not install here (pip install ray==2.60.0)")
    cluster = LocalCluster(with_token=with_token)
    try:
        for name in names:
            cluster.add(name, cpus)
        yield cluster
    finally:
        cluster.close()
