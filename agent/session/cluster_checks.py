"""Check whether a Ray cluster is ready. A process on each node examines it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.menu.files import load_menu
from agent.session.machine_checks import WITHOUT_LANDLOCK, Check, disk_state
from agent.session.own_trainer import OwnTrainer
from autoresearch.errors import AutoresearchError, SettingsError
from trainer.executors.ray.cluster import RayCluster
from trainer.executors.ray.connection import takes_anyone
from trainer.executors.ray.facts import Node, unfit
from trainer.executors.ray.messages import Needs
from trainer.executors.slurm.lane import slurm_version


def examine_cluster(
    executor: str, menu: str | None = None, runs: Path = Path("runs")
) -> Iterator[Check]:
    """Yield the checks of each node: one if all is well, else one per fault.

    :param executor: ``ray``, ``ray:HOST:PORT`` or ``slurm``, whose nodes are not known before.
    :param menu: menu whose trials will run there.
    :param runs: where campaigns will be kept.
    """
    name, _, address = executor.partition(":")
    try:
        if name == "slurm":
            yield Check("cluster", "good", f"{slurm_version()}; the loop submits its jobs")
            return
        if name != "ray":
            raise SettingsError(
                f"the executor {executor!r} is not a cluster; set ray, ray:HOST:PORT or slurm"
            )
        cluster = RayCluster(address or None)
    except AutoresearchError as error:
        yield Check("cluster", "bad", f"{error}")
        return
    device, needs = demands(menu, runs)
    with cluster:
        nodes, silent = cluster.probe(needs=needs)
        lanes = sum(int(node.machine.cpus or node.machine.gpus) > 0 for node in nodes)
        yield Check(
            "cluster",
            "good" if lanes else "bad",
            f"{len(nodes) + len(silent)} node(s), {lanes} with CPUs or GPUs for lanes"
            + ("" if lanes else "; join some with `ray start --address HOST:PORT`"),
        )
        if takes_anyone():
            yield Check(
                "token",
                "note",
                "the cluster accepts connections without a token from anyone who reaches"
                " its ports; run `ray get-auth-token --generate` and start Ray everywhere with"
                " RAY_AUTH_MODE=token",
            )
        for node in nodes:
            yield from examine_node(node, device)
        for name, why in silent.items():
            yield Check(name, "bad", why)


def demands(menu: str | None, runs: Path) -> tuple[str, Needs | None]:
    """Return the device that a menu's trials need, and the needs of its command, if any.

    That is a CPU if the menu cannot be loaded, which another check reports.
    """
    if menu is None:
        return "cpu", None
    try:
        loaded = load_menu(menu)
        own = OwnTrainer.of(menu, loaded, runs / loaded.name)
    except AutoresearchError:
        return "cpu", None
    return loaded.campaign.min_device, None if own is None else Needs(own.command)


def examine_node(node: Node, device: str) -> Iterator[Check]:
    """Yield a node's faults, one check each, and one check with its facts if it can be used."""
    facts, faults = node.facts, []
    if wrong := unfit(facts, device):
        faults.append(Check(node.name, "bad", wrong))
    if not facts.confines:
        why = "its kernel has no Landlock, so trials cannot be confined there"
        faults.append(Check(node.name, "bad", f"{why}; {WITHOUT_LANDLOCK}"))
    disk = disk_state(facts.free_gib)
    if not facts.disk and disk != "good":
        found = f"{facts.free_gib:.1f} GiB free at {facts.directory}; free some space"
        faults.append(Check(node.name, disk, found))
    if all(fault.state != "bad" for fault in faults):
        yield Check(
            node.name,
            "good",
            f"{facts.kind(device)}, {node.machine.cpus:g} CPUs and {node.machine.gpus:g} GPUs for"
            f" Ray, {facts.memory_gib:.0f} GiB free; torch {facts.torch}; {facts.sandbox};"
            f" {facts.free_gib:.0f} GiB free at {facts.directory}",
        )
    yield from faults
