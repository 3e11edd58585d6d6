"""Measure what a trial of a user's script costs beyond calling its function in a warm process.

Goals are on processor time, of the trial and of the driver's share in it, which other work on the
machine hardly changes. Wall times are in the conditions.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median

import psutil

from bench.figure import Figure
from tests.support.commands import command, command_spec
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.schema import CommandOk

TRIALS = 15
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Threads that wait for each other on a busy machine spin, which counts as processor time."""

PLAIN = """
def main():
    x = sum(i * i for i in range(200_000)) % 7
    print("val loss", float(x))
"""
TORCH = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(512, 16), torch.randn(512, 1))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in DataLoader(data, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    print("val loss", loss.item())
"""
SKLEARN = """
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

def main():
    x, y = make_classification(500, random_state=0)
    model = RandomForestClassifier(20, random_state=0).fit(x, y)
    print("val loss", 1 - model.score(x, y))
"""
GUARD = """
if __name__ == "__main__":
    main()
"""
SCRIPTS = {
    "plain Python": (PLAIN, ()),
    "torch": (TORCH, ("torch",)),
    "scikit-learn": (SKLEARN, ("sklearn.datasets", "sklearn.ensemble")),
}
WARM = """
import importlib, sys, time
module = importlib.import_module("train")
for _ in range(int(sys.argv[1]) + 1):
    began, busy = time.perf_counter(), time.process_time()
    module.main()
    print("warm", time.perf_counter() - began, time.process_time() - busy)
"""


@dataclass(frozen=True, slots=True)
class _Timing:
    """Milliseconds of a trial or of a call."""

    wall: float
    busy: float
    """Processor time of all its processes."""

    def __str__(self) -> str:
        return f"{self.wall:.0f} ({self.busy:.0f})"


def run() -> list[Figure]:
    """Time trials of each script, forked with its imports loaded and as a new program."""
    figures = []
    for name, (text, preload) in SCRIPTS.items():
        if any(find_spec(module.split(".")[0]) is None for module in preload):
            continue
        with tempfile.TemporaryDirectory() as place:
            Path(place, "train.py").write_text(text + GUARD)
            warm = _warm(place)
            forked = _trials(place, "forked", main="main", preload=preload)
            whole = _trials(place, "whole", main="__main__", preload=preload)
            program = _trials(place, "program")
        cost = forked.busy - warm.busy
        figures.append(
            Figure(
                f"own script, {name}: a trial beyond its function, processor time",
                cost,
                "ms",
                goal="<= 60",
                met=cost <= 60,
                note=f"{TRIALS} runs, wall (processor) ms: function {warm}, trial {forked}, the "
                f'same by main = "__main__" {whole}, as a new program {program}',
            )
        )
    return figures


def _warm(place: str) -> _Timing:
    """Time calls of the function in one process."""
    done = subprocess.run(
        [sys.executable, "-c", WARM, str(TRIALS)],
        cwd=place, capture_output=True, text=True, check=True, env=os.environ | ONE_THREAD,
    )  # fmt: skip
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("warm ")][1:]
    wall, busy = ([1e3 * float(text) for text in column] for column in zip(*lines, strict=True))
    return _Timing(median(wall), median(busy))


def _trials(place: str, name: str, **fields: object) -> _Timing:
    """Time trials from the request to the result."""
    timings = []
    env = tuple(ONE_THREAD.items())
    given = command(argv=(sys.executable, "train.py"), directory=place, env=env, **fields)
    with LocalExecutor(entry=COMMAND_ENTRY, allow_unsandboxed=True) as executor:
        server = psutil.Process(executor.lane.server.pid)
        for number in range(TRIALS + 1):
            trial_dir = Path(place, "runs", name, "trials", f"t{number:06d}")
            before = sum(server.cpu_times()[:4]) + time.process_time()
            finished = executor.run(command_spec(command=given), trial_dir)
            assert isinstance(finished.result, CommandOk), finished.result
            busy_s = sum(server.cpu_times()[:4]) + time.process_time() - before
            timings.append(_Timing(1e3 * finished.wall_s, 1e3 * busy_s))
    counted = timings[1:]  # the first one waits until the server is ready
    # The kernel counts processor time in ticks of 10 ms, so a mean, which averages them.
    return _Timing(median(one.wall for one in counted), fmean(one.busy for one in counted))
