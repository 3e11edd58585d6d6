"""A Ray cluster: find its machines, open lanes on the fit ones, combine them into an executor."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

from autoresearch.closing import Closing
from autoresearch.errors import MachineryError, SettingsError
from trainer.executors.lanes import Lanes
from trainer.executors.local import ENTRY
from trainer.executors.ray.connection import Remote, connect, disconnect, machines
from trainer.executors.ray.facts import Node, seats, unfit
from trainer.executors.ray.lane import LEASE_S, OPENING_S, RayLane
from trainer.executors.ray.messages import LaneOrder, Machine, Needs
from trainer.executors.ray.parcels import fill
from trainer.schema import Command


class RayCluster(Closing):
    """A driver's connection to a cluster. The code that opens it closes it, after its lanes."""

    def __init__(self, address: str | None = None, sent: Path | None = None) -> None:
        """
        :param address: ``HOST:PORT``; None: the cluster that this machine is a node of.
        :param sent: the directory to send to nodes.
        :raises SettingsError: if the address is invalid, or Ray is not installed.
        :raises MachineryError: if no cluster there takes this machine.
        """
        connect(address, sent)

    def close(self) -> None:
        """End every actor of this driver, and its connection."""
        disconnect()

    def machines(self) -> dict[str, Machine]:
        """Return the machines that are alive, by name; a number distinguishes equal names."""
        named: dict[str, Machine] = {}
        seen = Counter[str]()
        for machine in machines():
            seen[machine.name] += 1
            number = seen[machine.name]
            named[machine.name if number == 1 else f"{machine.name}.{number}"] = machine
        return named

    def probe(
        self, only: Collection[str] = (), needs: Needs | None = None
    ) -> tuple[list[Node], dict[str, str]]:
        """Ask each machine for its facts; return the nodes, and why others do not answer.

        :param only: names of the machines to ask; empty: all.
        :param needs: the needs of the command that will train there, if any.
        """
        found = self.machines()
        asked = {
            name: Remote(machine.id, name=name, cpus=0, gpus=0)
            for name, machine in found.items()
            if not only or name in only
        }
        nodes, silent = [], {}
        for name, remote in asked.items():
            try:
                facts = remote.ask("facts", needs, within_s=OPENING_S)
                nodes.append(Node(name, found[name], facts))
            except MachineryError as error:
                silent[name] = str(error)
            finally:
                remote.end()
        return nodes, silent

    def open_lanes(
        self,
        lanes: int | None = None,
        *,
        device: str = "cpu",
        kind: str | None = None,
        only: Collection[str] = (),
        allow_unsandboxed: bool = False,
        entry: str = ENTRY,
        needs: Needs | None = None,
        script_sha256: str = "",
    ) -> tuple[list[RayLane], dict[str, str]]:
        """Open lanes on the fit machines; return them, and why the other machines are unfit.

        :param lanes: how many; None: one per GPU, or one per node.
        :param kind: the kind of the campaign's device; None: the kind that most machines have.
        :param only: names of the machines to consider; empty: all.
        :param needs: the needs of the command that will train there, if any.
        :param script_sha256: the hash of the command's script, if one was sent.
        :raises SettingsError: if there is no room for so many lanes, or no machine of the kind.
        :raises MachineryError: if a lane does not open.
        """
        nodes, refused = self.probe(only, needs)
        usable, kind = _alike(nodes, device, kind, refused)
        order = LaneOrder(
            token="",
            entry=entry,
            lease_s=LEASE_S,
            allow_unsandboxed=allow_unsandboxed,
            script_sha256=script_sha256,
        )
        try:
            wanted = seats(usable, device, lanes)
        except SettingsError as error:
            why = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
            raise SettingsError(f"{error}" + (f" ({why})" if why else "")) from error
        # All at once takes seconds, but many on few cores would not answer in time.
        with futures.ThreadPoolExecutor(sum(node.facts.cores for node in usable)) as threads:
            asked = [threads.submit(RayLane, seat, order, kind) for seat in wanted]
        opened = [each.result() for each in asked if each.exception() is None]
        if len(opened) < len(asked):
            for lane in opened:
                lane.close()
            raise next(filter(None, (each.exception() for each in asked)))
        return opened, refused


def _alike(
    nodes: Sequence[Node], device: str, kind: str | None, refused: dict[str, str]
) -> tuple[list[Node], str]:
    """Return the fit machines of one kind, and that kind; add the others to ``refused``."""
    usable = []
    for node in nodes:
        wrong = unfit(node.facts, device)
        if wrong:
            refused[node.name] = wrong
        else:
            usable.append(node)
    there = Counter(node.facts.kind(device) for node in usable)
    kind = kind or min(there, key=lambda one: (-there[one], one), default="")
    for node in [n for n in usable if n.facts.kind(device) != kind]:
        usable.remove(node)
        refused[node.name] = (
            f"{node.facts.kind(device)}, where the campaign's is {kind}; runs on unlike"
            " machines cannot be paired"
        )
    return usable, kind


def open_cluster(
    address: str | None,
    lanes: int | None,
    *,
    command: Command | None,
    corpus: Path | None,
    campaign: Path,
    **asked: Any,
) -> Lanes:
    """Connect, send files and open lanes, which close with the connection; see
    :meth:`RayCluster.open_lanes` and :func:`fill`.

    :param command: the command that trials run; None: the built-in trainer.
    """
    with tempfile.TemporaryDirectory(prefix="autoresearch-") as folder:
        script_sha256 = fill(Path(folder), command, corpus, campaign)
        cluster = RayCluster(address, Path(folder))
    try:
        needs = None if command is None else Needs(command)
        opened, refused = cluster.open_lanes(
            lanes, needs=needs, script_sha256=script_sha256, **asked
        )
        executor = Lanes(opened, closing=cluster)
    except BaseException:
        cluster.close()
        raise
    executor.kind, executor.refused = opened[0].place.device, refused
    return executor
