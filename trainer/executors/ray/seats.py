"""Select the fit machines of a cluster, and place lanes on them."""

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
    """The planned place of a lane, before it is opened, and again after it is lost."""

    node: str
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
    """Place the lanes: one per GPU, or on CPUs dealt to the nodes in turn, each with its own cores.

    :param lanes: how many; None: one per GPU, or on CPUs one per node.
    :raises SettingsError: if there is no room for so many.
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
    """Deal ``wanted`` lanes in turn to the nodes that have room."""
    dealt = dict.fromkeys(room, 0)
    while wanted:
        for name, places in room.items():
            if wanted and dealt[name] < places:
                dealt[name] += 1
                wanted -= 1
    return {name: many for name, many in dealt.items() if many}
