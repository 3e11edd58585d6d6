"""Which machines of a cluster will do, and where on them lanes are to be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autoresearch.code import code_identity, installed_version
from autoresearch.errors import SettingsError
from trainer.executors.ray.connection import Machine
from trainer.executors.ray.values import NodeFacts


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster, by the name that its lanes carry."""

    name: str
    machine: Machine
    facts: NodeFacts


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a lane is to be: before it is opened, and again after it is lost."""

    node: str
    device: str
    """``cpu0``, ``gpu3``: which of its node's."""
    cpus: float
    gpus: float
    share: int
    shares: int | None

    @property
    def name(self) -> str:
        return f"{self.node}:{self.device}"


def unfit(facts: NodeFacts, device: str) -> str:
    """Why no trial of a campaign here can run there, and what to do; empty where one can."""
    if facts.code != code_identity():
        return (
            f"it has autoresearch {facts.code} and this machine {code_identity()}; install the same"
            " version there"
        )
    if facts.torch != installed_version("torch"):
        return (
            f"it has torch {facts.torch} and this machine {installed_version('torch')}, and their"
            " sums differ; install the same version there"
        )
    if facts.disk:
        return f"{facts.directory} cannot be written there ({facts.disk}); make it writable"
    if device.startswith("cuda") and not facts.gpus:
        return "it shows no GPU; see nvidia-smi there"
    return facts.lacks


def seats(nodes: Iterable[Node], device: str, lanes: int | None) -> list[Seat]:
    """Where lanes are to be: on GPUs one each, on CPUs dealt out to the nodes in turn, each
    with cores of its own.

    :param lanes: None: all GPUs; on CPUs one a node.
    :raises SettingsError: where there is no room for so many.
    """
    on_gpu = device.startswith("cuda")
    room = {node.name: int(node.machine.gpus if on_gpu else node.machine.cpus) for node in nodes}
    wanted = lanes or (sum(room.values()) if on_gpu else sum(map(bool, room.values())))
    if not 0 < wanted <= sum(room.values()):
        raise SettingsError(
            f"there is no room for {lanes or 'any'} lane(s) on the cluster, which has"
            f" {sum(room.values())} free {'GPU' if on_gpu else 'CPU'}(s) on machines that will"
            " do; ask for fewer with --lanes, or see `autoresearch doctor --executor ray`"
        )
    dealt = _deal(room, wanted)
    if on_gpu:
        return [
            Seat(name, f"gpu{i}", 0, 1, 0, None)
            for name, many in dealt.items()
            for i in range(many)
        ]
    return [
        Seat(name, f"cpu{i}", room[name] // many, 0, i, many)
        for name, many in dealt.items()
        for i in range(many)
    ]


def _deal(room: dict[str, int], wanted: int) -> dict[str, int]:
    """So many, given out in turn to who has room."""
    dealt = dict.fromkeys(room, 0)
    while wanted:
        for name, places in room.items():
            if wanted and dealt[name] < places:
                dealt[name] += 1
                wanted -= 1
    return {name: many for name, many in dealt.items() if many}
