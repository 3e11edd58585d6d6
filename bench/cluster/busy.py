"""How busy lanes on four nodes are kept with trials that sleep, and what that costs the driver."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import sleeping_trial
from bench.figure import Figure
from tests.support.ray_clusters import local_cluster
from tests.support.trials import trial_spec
from tests.support.waiting import wait_until
from trainer.executors.base import Executor
from trainer.executors.ray.choice import ClusterLanes
from trainer.executors.ray.cluster import RayCluster


def kept_busy(lanes: int, nodes: tuple[str, ...], turns: int) -> list[Figure]:
    """From when all of them are up, and each has run a trial."""
    trials = lanes * turns
    with _opened(lanes, nodes) as executor, tempfile.TemporaryDirectory() as directory:
        _all(executor, Path(directory, "first"), lanes)  # the fork servers get ready
        began_s, cpu_s = time.monotonic(), time.process_time()
        _all(executor, Path(directory, "then"), trials)
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    load = os.getloadavg()[0]
    efficiency = turns * sleeping_trial.SLEEP_S / took_s
    return [
        Figure(
            f"efficiency, {lanes} lanes on {len(nodes)} nodes",
            efficiency,
            "",
            goal=">= 0.9",
            met=efficiency >= 0.9,
            note=f"{trials} trials of {sleeping_trial.SLEEP_S:g} s, loopback; load {load:.0f}",
        ),
        Figure(
            f"the driver's processor time a trial, {lanes} lanes",
            1e3 * cpu_s / trials,
            "ms",
            note="questions, files and Ray's own threads in the campaign's process",
        ),
    ]


def _all(executor: Executor, directory: Path, trials: int) -> None:
    jobs = [
        executor.submit(trial_spec(trial_id=str(number)), directory / str(number))
        for number in range(trials)
    ]
    for job in jobs:
        job.result()


@contextmanager
def _opened(lanes: int, names: tuple[str, ...]) -> Iterator[Executor]:
    """So many lanes, on nodes that say they have a CPU for each."""
    with (
        tempfile.TemporaryDirectory() as directory,
        local_cluster(*names, cpus=-(-lanes // len(names))) as nodes,
        RayCluster(nodes.address, data_dir=Path(directory)) as cluster,
    ):
        wait_until(lambda: len(cluster.machines()) == len(names) + 1)
        opened, refused = cluster.open_lanes(
            lanes, entry=sleeping_trial.ENTRY, allow_unsandboxed=True
        )
        with ClusterLanes(cluster, opened, refused) as executor:
            yield executor
