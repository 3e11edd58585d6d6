"""Find the facts about a machine, select the fit machines of a cluster, and place lanes there."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from autoresearch.code import code_identity, installed_version
from autoresearch.errors import MachineryError, SettingsError
from trainer.executors.ray.messages import Machine, Needs, NodeFacts
from trainer.isolation.kernel.sandbox import Layers
from trainer.machine.environment import cache_folder
from trainer.machine.host import available_gib, cpu_name

_GIB = 1 << 30


def node_directory() -> Path:
    """Return the directory for running trials on this node, in its cache folder.

    :raises MachineryError: if there is none.
    """
    try:
        return cache_folder() / "node"
    except RuntimeError as error:
        raise MachineryError(
            f"the user of Ray on {socket.gethostname()} has no home directory to keep trials in;"
            " start Ray there with AUTORESEARCH_DATA_DIR or HOME set"
        ) from error


def find_facts(directory: Path, needs: Needs | None = None) -> NodeFacts:
    """Return the facts about this machine.

    :param directory: the directory for running trials.
    :param needs: the needs of the command that will train here, if any.
    """
    layers = Layers.detect()
    refused, free_gib = "", 0.0
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            file.write(b"x")
        free_gib = shutil.disk_usage(directory).free / _GIB
    except OSError as error:
        refused = f"{error.strerror}"
    return NodeFacts(
        code=code_identity(),
        torch=installed_version("torch"),
        cpu=cpu_name(),
        gpus=_gpus(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=available_gib(),
        confines=layers.confine,
        sandbox=layers.describe(),
        directory=str(directory),
        disk=refused,
        free_gib=free_gib,
        lacks="" if needs is None else needs.lacking(),
    )


def _gpus() -> tuple[str, ...]:
    """Return the names of all GPUs that NVML shows; CUDA_VISIBLE_DEVICES selects a lane's."""
    import pynvml  # noqa: PLC0415 (useless on a CPU)

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster, by the name that its lanes carry."""

    name: str
    machine: Machine
    facts: NodeFacts


@dataclass(frozen=True, slots=True)
class Seat:
    """The planned place of a lane, before it is opened, and again after it is lost."""

    node: str
    """The node's name."""
    machine: Machine
    device: str
    """The device on its node: ``cpu0``, ``gpu3``."""
    cpus: float
    gpus: float
    share: int
    shares: int | None

    @property
    def name(self) -> str:
        return f"{self.node}:{self.device}"


def unfit(facts: NodeFacts, device: str) -> str:
    """Return why no trial of a campaign here can run there, and what to do; empty if one can."""
    for name, theirs, ours in (
        ("autoresearch", facts.code, code_identity()),
        ("torch", facts.torch, installed_version("torch")),
    ):
        if theirs != ours:
            return (
                f"it has {name} {theirs} and this machine {ours}, and sums may differ; install the"
                " same version there"
            )
    if facts.disk:
        return f"{facts.directory} cannot be written there ({facts.disk}); make it writable"
    if device.startswith("cuda") and not facts.gpus:
        return "it shows no GPU; see nvidia-smi there"
    return facts.lacks


def seats(nodes: Iterable[Node], device: str, lanes: int | None) -> list[Seat]:
    """Place the lanes: one per GPU, or on CPUs dealt to the nodes in turn, each with its own cores.

    :param lanes: how many; None: one per GPU, or on CPUs one per node.
    :raises SettingsError: if there is no room for so many.
    """
    on_gpu = device.startswith("cuda")
    there = {node.name: node.machine for node in nodes}
    room = {name: int(one.gpus if on_gpu else one.cpus) for name, one in there.items()}
    wanted = lanes or (sum(room.values()) if on_gpu else sum(map(bool, room.values())))
    if not 0 < wanted <= sum(room.values()):
        raise SettingsError(
            f"there is no room for {lanes or 'any'} lane(s) on the cluster, which has"
            f" {sum(room.values())} free {'GPU' if on_gpu else 'CPU'}(s) on machines that will"
            " do; ask for fewer with --lanes, or see `autoresearch doctor --executor ray`"
        )
    # In turn: the first lane of each node, then the second of each.
    places = sorted((i, n, name) for n, name in enumerate(room) for i in range(room[name]))
    dealt = Counter(name for _, _, name in places[:wanted])
    return [
        Seat(name, there[name], f"gpu{i}", 0, 1, 0, None)
        if on_gpu
        else Seat(name, there[name], f"cpu{i}", room[name] // many, 0, i, many)
        for name, many in dealt.items()
        for i in range(many)
    ]
