"""Measure what many lanes on Ray cost in processor time, with trials that sleep.

``python -m bench.cluster.lanes --lanes 64`` starts four nodes on this machine. A busy machine
lowers the efficiency; it also lengthens trials, and with them the processor time.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import psutil
import typer

from bench.figure import Figure
from tests.support.ray_clusters import local_cluster
from tests.support.trials import trial_spec
from tests.support.waiting import wait_until
from trainer.executors.base import Executor
from trainer.executors.lanes import Lanes
from trainer.executors.ray.cluster import RayCluster
from trainer.schema import TrialFailed, TrialSpec

SLEEP_S = 2.0
IDLE_S = 20.0
GOAL_MS, GOAL_EFFICIENCY = 40.0, 0.9
ENTRY = f"{__spec__.name if __spec__ else __name__}:run"
NODES = ("a", "b", "c", "d")


def run(spec: TrialSpec, trial_dir: Path, *, born: float) -> TrialFailed:
    """Sleep instead of training."""
    time.sleep(SLEEP_S)
    return TrialFailed(status="pruned", message="slept")


def figures(lanes: int, each: int) -> list[Figure]:
    """Return efficiency and processor time of driver and actors, busy and idle."""
    with (
        tempfile.TemporaryDirectory() as directory,
        local_cluster(*NODES, cpus=-(-lanes // len(NODES))) as nodes,
        RayCluster(nodes.address) as cluster,
    ):
        wait_until(lambda: len(cluster.machines()) == len(NODES) + 1)
        opened, _ = cluster.open_lanes(lanes, entry=ENTRY, allow_unsandboxed=True)
        with Lanes(opened) as executor:
            _run_all(executor, Path(directory, "first"), lanes)  # the fork servers become ready
            actors = [actor for node in nodes.nodes.values() for actor in node.actors()]
            began_s, before = time.monotonic(), _used_s(actors)
            _run_all(executor, Path(directory, "then"), lanes * each)
            took_s, after = time.monotonic() - began_s, _used_s(actors)
            time.sleep(IDLE_S)
            idle = _used_s(actors)
    driver, actor = (1e3 * (b - a) / (lanes * each) for a, b in zip(before, after, strict=True))
    efficiency = each * SLEEP_S / took_s
    load = f"{lanes * each} trials of {SLEEP_S:g} s, load {os.getloadavg()[0]:.0f}"
    name = f"{lanes} lanes on Ray"
    at_rest = 1e3 * (idle[1] - after[1]) / IDLE_S / lanes
    goal, both = f"at most {GOAL_MS:g} ms together", driver + actor <= GOAL_MS
    return [
        Figure(
            f"efficiency, {name}",
            efficiency,
            "",
            f"at least {GOAL_EFFICIENCY:g}",
            efficiency >= GOAL_EFFICIENCY,
            load,
        ),
        Figure(f"driver's processor time a trial, {name}", driver, "ms", goal, both, load),
        Figure(f"actor's processor time a trial, {name}", actor, "ms", goal, both, load),
        Figure(f"idle actor, {name}", at_rest, "ms a second", note=f"over {IDLE_S:g} s"),
    ]


def _run_all(executor: Executor, directory: Path, trials: int) -> None:
    jobs = [
        executor.submit(trial_spec(trial_id=str(number)), directory / str(number))
        for number in range(trials)
    ]
    for job in jobs:
        job.result()


def _used_s(actors: Iterable[psutil.Process]) -> tuple[float, float]:
    """Return the processor time of this process and of the actors, without their children."""
    used = [actor.cpu_times() for actor in actors]
    return time.process_time(), sum(one.user + one.system for one in used)


def main(
    lanes: Annotated[int, typer.Option(min=4, help="Lanes.")] = 64,
    each: Annotated[int, typer.Option(min=1, help="Trials per lane.")] = 5,
) -> None:
    """Print the figures."""
    for figure in figures(lanes, each):
        print(f"{figure.name}: {figure.value_text} {figure.goal_text}; {figure.note}", flush=True)


if __name__ == "__main__":
    typer.run(main)
