"""Load Ray, connect to a cluster, and translate Ray's errors. No other module loads Ray.

Comments on its behavior describe observations of Ray Core 2.60.
"""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from autoresearch.code import library_command, package_root
from autoresearch.errors import AutoresearchError, MachineryError, SettingsError
from autoresearch.program import install_command
from trainer.executors.base import LaneLost
from trainer.executors.ray.messages import Machine
from trainer.executors.ray.node import NodeLane
from trainer.machine.environment import allowed_environment, as_it_is, tell

_POLL_S = 0.5
"""How often a caller is heard while an answer is awaited, which costs no request."""
_KNOCK_S = 5.0
"""Time limit to reach the address at all; Ray itself would try for minutes."""
_PROBE_S = 120.0
_ON_NODES = {
    # A worker that must end kills its children with SIGKILL, the fork server among them, which then
    # cannot end a trial's processes. Without this, the fork server sees its parent end and does so.
    "RAY_kill_child_processes_on_worker_exit": "false",
}
"""Variables in the environment of every process that Ray starts for us."""
_SKIP_LINES = "RAY_DEDUP_LOGS_SKIP_REGEX"
"""The variable for lines that Ray must not print in the driver (its manual: "Configuring Logging").

Ray reads it on import. When a node goes, Ray would print twenty lines of its raylet's log, but we
report a lost lane ourselves, once. ``log_to_driver=False`` only affects what workers print."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r"\[?[\w.:%-]+\]?:\d{1,5}")


def load_ray() -> ModuleType:
    """Import Ray.

    :raises SettingsError: if Ray is not installed.
    """
    tell(_SKIP_LINES, "^")
    try:
        import ray  # noqa: PLC0415 (takes more than a second, and few users need it)
    except ImportError as error:
        raise SettingsError(
            f"the executor ray needs Ray, which does not import here ({error});"
            f" run: {install_command('ray')}"
        ) from error
    loaded: ModuleType = ray
    return loaded


def connect(address: str | None = None, sent: Path | None = None) -> None:
    """Connect to the cluster at ``HOST:PORT`` as a driver; None: to this machine's own cluster.

    :param sent: a directory that Ray copies to each node, where every process for us starts in it.
        The original may be deleted afterwards.
    :raises SettingsError: if the address is invalid, or Ray is not installed.
    :raises MachineryError: if no cluster there takes this machine.
    """
    ray = load_ray()
    if address is not None:
        _knock(address)
    if ray.is_initialized():
        raise MachineryError("this process is connected to a Ray cluster already; close that first")
    files = {} if sent is None else {"working_dir": str(sent)}
    try:
        with _signals_kept(), contextlib.chdir(package_root()):
            # Ray's workers import first from this process's current directory. In a person's
            # checkout that would run their trainer.py, unconfined, in place of ours.
            ray.init(
                address=address or "auto",
                runtime_env={"env_vars": _ON_NODES, **files},
                log_to_driver=False,
                configure_logging=False,
                logging_level=logging.CRITICAL,
            )
    except Exception as error:  # of many kinds: ConnectionError, RuntimeError, ValueError, …
        raise MachineryError(
            f"the Ray cluster {'of this machine' if address is None else f'at {address}'} does not"
            f" take it ({_gist(error)}); start one with `ray start --head`, or join one with `ray"
            " start --address HOST:PORT`, with --num-cpus 0 if it should train nothing here; where"
            " it was started with a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or"
            " ~/.ray/auth_token, as on its head"
        ) from error
    logging.getLogger("ray").setLevel(logging.CRITICAL)  # for the same reason


def takes_anyone() -> bool:
    """Return whether the cluster that this process is connected to accepts clients without a token.

    A separate process without a token asks for the cluster's state, since this process's own
    connection says nothing about that.
    """
    address = load_ray().get_runtime_context().gcs_address
    done = subprocess.run(
        library_command("ray.scripts.scripts", "status", "--address", address),
        env={**allowed_environment(also=("RAY_",)), **_tls_files(), "RAY_AUTH_MODE": "disabled"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=_PROBE_S,
    )
    return done.returncode == 0


def _tls_files() -> dict[str, str]:
    """Return the variables that name Ray's TLS files, which look like secrets and are paths."""
    return {name: value for name, value in as_it_is().items() if name.startswith("RAY_TLS_")}


def disconnect() -> None:
    """Disconnect from the cluster, which ends every actor that this process started."""
    ray = load_ray()
    if ray.is_initialized():
        ray.shutdown()


def machines() -> list[Machine]:
    """Return the nodes that are alive, sorted by name and address.

    :raises MachineryError: if the cluster does not answer.
    """
    ray = load_ray()
    try:
        found = [node for node in ray.nodes() if node["Alive"]]
    except Exception as error:
        raise MachineryError(
            f"the Ray cluster does not answer ({_gist(error)}); see `ray status`"
        ) from error
    alive = []
    for node in found:
        address, given = node["NodeManagerAddress"], node.get("NodeName")
        resources = node["Resources"]
        machine = Machine(
            id=node["NodeID"],
            name=given if given and given != address else node["NodeManagerHostname"],
            cpus=resources.get("CPU", 0.0),
            gpus=resources.get("GPU", 0.0),
            address=address,
        )
        alive.append(machine)
    return sorted(alive, key=lambda one: (one.name, one.address, one.id))


class Remote:
    """An actor on a node that hosts a :class:`NodeLane`; every call has a timeout."""

    def __init__(self, node_id: str, *, name: str, cpus: float, gpus: float) -> None:
        """Start the actor, without waiting for it.

        :param name: the lane's name, for messages.
        """
        ray = load_ray()
        from ray.util.scheduling_strategies import (  # noqa: PLC0415 (as above)
            NodeAffinitySchedulingStrategy,
        )

        self._ray = ray
        self._name = name
        actor = ray.remote(NodeLane).options(
            num_cpus=cpus,
            num_gpus=gpus,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=4,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
        )
        self._actor = actor.remote()

    def ask(
        self,
        method: str,
        *arguments: object,
        within_s: float,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Any:
        """Call a method of the NodeLane and return its answer.

        :param meanwhile: called every half second until the answer comes.
        :raises LaneLost: if no answer comes in time, or none can come any more.
        :raises AutoresearchError: if the method raises one.
        """
        ray = self._ray
        ends = time.monotonic() + within_s
        try:
            asked = getattr(self._actor, method).remote(*arguments)
            while (left_s := ends - time.monotonic()) > _POLL_S:
                if ray.wait([asked], timeout=_POLL_S)[0]:
                    break
                meanwhile()
            return ray.get(asked, timeout=max(left_s, 0))
        except ray.exceptions.GetTimeoutError as error:
            raise LaneLost(
                f"lane {self._name} has not answered for {within_s:g} s; see whether another"
                " campaign has its node in `ray status`, and check the network between the machines"
            ) from error
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, AutoresearchError):
                raise cause from None
            raise LaneLost(f"lane {self._name} is gone ({_gist(error)})") from error

    def end(self) -> None:
        """End the actor if it can still be reached. The processes that it started end with it."""
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError, RuntimeError):
            self._ray.kill(self._actor, no_restart=True)


def _knock(address: str) -> None:
    if not _ADDRESS.fullmatch(address):
        raise SettingsError(
            f"{address!r} is not an address of a Ray cluster; write it like ray:10.0.0.1:6379"
        )
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_S).close()
    except (OSError, OverflowError) as error:
        raise MachineryError(
            f"no Ray cluster answers at {address} ({error}); on its head run `ray start --head`, "
            "or choose another address"
        ) from error


def _gist(error: BaseException) -> str:
    """Return an error's first line; if its text holds a traceback, the last line, the cause."""
    raw = _COLOURS.sub("", str(error)).splitlines()
    lines = [line.strip() for line in raw if line.strip()]
    if any(line.startswith('File "') for line in lines):
        lines.reverse()
    return lines[0][:300].rstrip(".") if lines else type(error).__name__


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore this process's signal handlers afterwards, since Ray replaces that of SIGTERM."""
    ours = threading.current_thread() is threading.main_thread()
    kept = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)} if ours else {}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
