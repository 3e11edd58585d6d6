"""Measure whether one driver keeps many lanes busy, with trials that take their time but no work.

``python -m bench.cluster.waiting_lanes --lanes 256`` runs a campaign of cpu-tiny, whose loop,
proposals, judgments and files are the product's own. A trial takes 8 to 12 s of real time.
"""

import asyncio
import heapq
import json
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Annotated, Any
from unittest import mock

import typer

from agent.session import lane_opening
from bench.figure import Figure
from tests.support.campaigns import Toy
from tests.support.in_process import run_here
from tests.support.simulated.commands import ToyWorld
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.world import Outcome
from trainer.executors.base import Finished
from trainer.memory import estimate
from trainer.schema import TrialOk, TrialSpec

TRIAL_S = 10.0
GOAL = 0.9


class SlowWorld(ToyWorld):
    """A toy world whose trials take about ten seconds."""

    def outcome(self, spec: TrialSpec) -> Outcome:
        """Return a trial's result and its curve."""
        result, points = super().outcome(spec)
        if isinstance(result, TrialOk):
            took_s = TRIAL_S * Random(spec.trial_id).uniform(0.8, 1.2)
            result = result.model_copy(update={"train_s": took_s})
        return result, points


class WaitingExecutor(SimulatedExecutor):
    """An executor whose trials end by the real clock; it records how many run."""

    def __init__(self, lanes: int) -> None:
        world: Any = SlowWorld()
        super().__init__(world, lanes)
        self.seen: list[tuple[float, int]] = []
        """Moments, and the number of trials that run from then on."""

    async def wait(self, ended: asyncio.Future[Finished], timeout_s: float) -> None:
        """Wait until a trial's time is over, and end it."""
        self.now_s = time.monotonic()
        if self._running:
            timeout_s = min(timeout_s, self._running[0][0] - self.now_s)
        await asyncio.wait([ended], timeout=max(0.0, timeout_s))
        self.now_s = time.monotonic()
        while self._running and self._running[0][0] <= self.now_s:
            _, _, job = heapq.heappop(self._running)
            self._free.append(job.lane)
            self._fill()
            job.end()
        self.seen.append((time.monotonic(), len(self._running)))

    def mean_running(self, after_s: float, before_s: float) -> float:
        """Return the mean number of running trials between two moments."""
        spans = [
            (later - at, running)
            for (at, running), (later, _) in zip(self.seen, self.seen[1:], strict=False)
            if after_s <= at and later <= before_s
        ]
        return sum(span * running for span, running in spans) / sum(span for span, _ in spans)


def figures(lanes: int, iterations: int) -> list[Figure]:
    """Return the share of lanes that are busy, and the driver's processor time."""
    made: list[WaitingExecutor] = []

    def executor(_name: str = "local", *, lanes: int = 1, **_others: Any) -> WaitingExecutor:
        made.append(WaitingExecutor(lanes))
        return made[-1]

    plenty = estimate.DeviceLimit(gib=64, source="trial")
    with (
        tempfile.TemporaryDirectory() as home,
        mock.patch.object(lane_opening, "choose_executor", executor),
        mock.patch.object(estimate, "device_limit", return_value=plenty),
    ):
        toy, directory = Toy(Path(home)), Path(home, "campaign")
        options = (f"--lanes={lanes}", f"--iters={iterations}", f"--campaign={directory}")
        began_s = time.process_time()
        ended = run_here(
            ("loop", "--menu=cpu-tiny", "--no-confirm", *options), toy.home, toy.environment
        )
        used_s = time.process_time() - began_s
        if ended.returncode:
            raise RuntimeError(ended.stderr)
        rows = map(json.loads, (directory / "trajectory.jsonl").read_text().splitlines())
        trials = sum(len(row["trials"]) for row in rows if row["kind"] == "iteration")
    busy = made[-1]
    # The lanes fill for two trials' time, and drain in the last.
    first_s, last_s = busy.seen[0][0] + 2 * TRIAL_S, busy.seen[-1][0] - 2 * TRIAL_S
    share = busy.mean_running(first_s, last_s) / lanes
    note = f"{trials} trials of {TRIAL_S:g} s that only wait"
    return [
        Figure(f"{lanes} lanes, share busy", share, "", f"at least {GOAL:g}", share >= GOAL, note),
        Figure("driver's processor time a trial", 1e3 * used_s / trials, "ms", note=note),
    ]


def main(
    lanes: Annotated[int, typer.Option(min=2, help="Lanes.")] = 256,
    iterations: Annotated[int, typer.Option(min=1, help="Iterations.")] = 1000,
) -> None:
    """Print the figures."""
    for figure in figures(lanes, iterations):
        print(f"{figure.name}: {figure.value_text} {figure.goal_text}; {figure.note}", flush=True)


if __name__ == "__main__":
    typer.run(main)
