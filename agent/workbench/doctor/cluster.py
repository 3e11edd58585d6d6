"""Check whether a Ray cluster is ready. A process on each node examines it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from agent.menu.files import load_menu
from agent.workbench.doctor.checks import Check, disk_state
from agent.workbench.own_trainer import OwnTrainer
from autoresearch.errors import AutoresearchError, SettingsError
from trainer.executors.ray.cluster import RayCluster
from trainer.executors.ray.connection import takes_anyone
from trainer.executors.ray.facts import Node, unfit
from trainer.executors.ray.needs import Needs

MOST_STORE_SHARE = 0.05
"""Largest sensible share of a node's memory for Ray's object store, which holds only pieces of
trials' files of a few MiB."""
CLOCK_S = 5.0
"""Largest clock difference in seconds; beyond it, times in a journal are hard to read."""


def ray_address(executor: str) -> str | None:
    """Return ``HOST:PORT`` of ``ray:HOST:PORT``, or None of ``ray``, this machine's cluster.

    :raises SettingsError: for another executor.
    """
    name, _, address = executor.partition(":")
    if name != "ray":
        raise SettingsError(
            f"the executor {executor!r} is not a Ray cluster; set ray or ray:HOST:PORT"
        )
    return address or None


def examine_cluster(
    executor: str, menu: str | None = None, runs: Path = Path("runs")
) -> Iterator[Check]:
    """Yield the checks of each node: one if all is well, else one per fault.

    :param executor: ``ray`` or ``ray:HOST:PORT``.
    :param menu: menu whose trials will run there.
    :param runs: where campaigns will be kept.
    """
    try:
        address = ray_address(executor)
        cluster = RayCluster(address)
    except AutoresearchError as error:
        yield Check("cluster", "bad", f"{error}")
        return
    device, needs = demands(menu, runs)
    with cluster:
        asked_s, began_s = time.time(), time.monotonic()
        nodes, silent = cluster.probe(needs=needs)
        took_s = time.monotonic() - began_s
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
            yield from examine_node(node, device, asked_s, took_s)
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
        own = OwnTrainer.at(menu, loaded, runs / loaded.name)
    except AutoresearchError:
        return "cpu", None
    return loaded.campaign.min_device, None if own is None else Needs(own.command)


def examine_node(node: Node, device: str, asked_s: float, took_s: float) -> Iterator[Check]:
    """Yield a node's faults, one check each, or one check with its facts.

    :param asked_s: when all nodes were asked, by this machine's clock; the node read its own clock
        within ``took_s`` of then.
    """
    faults = list(_faults(node, device))
    early_s, late_s = asked_s - node.facts.clock_s, node.facts.clock_s - (asked_s + took_s)
    off_s = max(early_s, late_s)
    if off_s > CLOCK_S:
        side = "behind" if early_s > late_s else "ahead"
        faults.append(
            Check(node.name, "note", f"its clock is {off_s:.0f} s {side}; set both by NTP")
        )
    state_of = {check.state for check in faults}
    if "bad" not in state_of:
        facts = node.facts
        yield Check(
            node.name,
            "good",
            f"{facts.kind(device)}, {node.machine.cpus:g} CPUs and {node.machine.gpus:g} GPUs for"
            f" Ray, {facts.memory_gib:.0f} GiB free; torch {facts.torch}; {facts.sandbox};"
            f" {facts.free_gib:.0f} GiB free at {facts.directory}",
        )
    yield from faults


def _faults(node: Node, device: str) -> Iterator[Check]:
    facts = node.facts
    wrong = unfit(facts, device)
    if wrong:
        yield Check(node.name, "bad", wrong)
    if not facts.confines:
        yield Check(
            node.name,
            "bad",
            "its kernel has no Landlock, so trials cannot be confined there; use Linux 5.13 or"
            " newer with landlock among its LSMs, or accept it with --allow-unsandboxed",
        )
    disk = disk_state(facts.free_gib)
    if not facts.disk and disk != "good":
        yield Check(
            node.name, disk, f"{facts.free_gib:.1f} GiB free at {facts.directory}; free some space"
        )
    store_gib = node.machine.object_store_bytes / 2**30
    if facts.memory_gib and store_gib > MOST_STORE_SHARE * facts.memory_gib:
        yield Check(
            node.name,
            "note",
            f"Ray's object store may take {store_gib:.1f} GiB of its memory, which is the GPU's too"
            " on a Spark; start Ray there with --object-store-memory 200000000",
        )
    if not facts.memory_monitor.endswith("=0"):
        yield Check(
            node.name,
            "note",
            "Ray's memory monitor may end a lane when memory runs short, though trials are limited"
            " by their own supervisor; start Ray there with RAY_memory_monitor_refresh_ms=0",
        )
