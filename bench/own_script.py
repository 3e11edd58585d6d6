"""Measure what a trial of a user's script costs beyond calling its function in a warm process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from bench.figure import Figure
from tests.support.commands import command, command_spec
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.spec import CommandOk

TRIALS = 15

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
    began = time.perf_counter()
    module.main()
    print("warm", time.perf_counter() - began)
"""


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
        cost = 1e3 * (forked - warm)
        figures.append(
            Figure(
                f"own script, {name}: a trial beyond its function",
                cost,
                "ms",
                goal="<= 60",
                met=cost <= 60,
                note=f"medians of {TRIALS}: function {1e3 * warm:.0f} ms, trial {1e3 * forked:.0f} "
                f'ms, the same by main = "__main__" {1e3 * whole:.0f} ms, as a new program '
                f"{1e3 * program:.0f} ms",
            )
        )
    return figures


def _warm(place: str) -> float:
    """Return the median seconds of calling the function in one process."""
    done = subprocess.run(
        [sys.executable, "-c", WARM, str(TRIALS)],
        cwd=place, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines()]
    return median([float(words[1]) for words in lines if words[0] == "warm"][1:])


def _trials(place: str, name: str, **fields: object) -> float:
    """Return the median seconds of a trial, from the request to its result."""
    seconds = []
    given = command(argv=(sys.executable, "train.py"), directory=place, **fields)
    with LocalExecutor(entry=COMMAND_ENTRY, allow_unsandboxed=True) as executor:
        for number in range(TRIALS + 1):
            trial_dir = Path(place, "runs", name, "trials", f"t{number:06d}")
            finished = executor.run(command_spec(command=given), trial_dir)
            assert isinstance(finished.result, CommandOk), finished.result
            seconds.append(finished.wall_s)
    return median(seconds[1:])  # the first one waits until the server is ready
