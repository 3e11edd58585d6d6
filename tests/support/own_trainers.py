"""Provide a checkout with a script that is not a GPT, its menu, and the installed command."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.support.campaigns import COMMAND, environment_of, run_command
from tests.support.commands import script
from trainer.command.filling import filled
from trainer.schema import TrialSpec

TRAIN = """
# Logistic regression by gradient descent; the style of small research scripts.
import argparse, math, random
from data import points
parser = argparse.ArgumentParser()
for name, kind in (("lr", float), ("l2", float), ("seed", int), ("steps", int)):
    parser.add_argument(f"--{name}", type=kind)
args = parser.parse_args()
train, held_out = points(args.seed)
def exp(x):
    if not x < 300:
        raise FloatingPointError("the weights \\x1b[31mblew up\\x1b[0m <script>alert(1)</script>")
    return math.exp(x)
w = [0.0, 0.0]
def loss(data):
    return sum(math.log1p(math.exp(-y * (w[0] * a + w[1] * b))) for a, b, y in data) / len(data)
for step in range(args.steps + 1):
    if step % 4 == 0:
        print(f"iter {step}: loss {loss(train):.4f}, time 0ms")
    for k in (0, 1):
        slope = sum(-y * p[k] / (1 + exp(y * (w[0] * p[0] + w[1] * p[1])))
                    for p in train for y in [p[2]]) / len(train)
        w[k] -= args.lr * (slope + args.l2 * w[k])
right = sum((w[0] * a + w[1] * b > 0) == (y > 0) for a, b, y in held_out) / len(held_out)
print(f"step {args.steps}: train loss {loss(train):.4f}, val loss {loss(held_out):.4f}")
print(f"val accuracy {right:.4f}")
"""
DATA = """
import random
def points(seed):
    rng = random.Random(seed)
    def one():
        y = rng.choice((-1, 1))
        return rng.gauss(0.6 * y, 1), rng.gauss(0.3 * y, 1), y
    return [one() for _ in range(60)], [one() for _ in range(400)]
"""
MENU = """
name = "own"
[trainer]
command = [
  "{{python}}", "train.py", "--lr={{lr}}", "--l2={{l2}}", "--seed={{seed}}", "--steps={{steps}}",
]
score = {{ pattern = 'val {what} ([0-9.]+)', take = "last" }}
unit = "{unit}"
curve = {{ pattern = 'iter (\\d+): loss ([0-9.]+)' }}
[knobs.lr]
type = "float"
low = 1e-3
high = 1e3
scale = "log"
default = 0.01
[knobs.l2]
type = "float"
low = 0.0
high = 1.0
default = 0.5
[campaign]
budget = "100 steps"
"""


class Own:
    """Hold a checkout with a script, and the menu that a person wrote beside it."""

    def __init__(self, home: Path, *, what: str = "loss", unit: str = "nats per point") -> None:
        self.home = home
        self.checkout = script(home / "checkout", TRAIN)
        script(self.checkout, DATA, "data.py")
        script(self.checkout, MENU.format(what=what, unit=unit), "own.toml")
        self.campaign = self.checkout / "runs" / "own"

        self.env = {**environment_of(home), "OPENAI_API_KEY": "precious"}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start the command, with its output discarded."""
        nowhere = subprocess.DEVNULL
        return subprocess.Popen(
            [str(COMMAND), *words], cwd=self.checkout, env=self.env, stdout=nowhere, stderr=nowhere
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_command(words, self.checkout, self.env)

    def __call__(self, *words: str, code: int = 0) -> str:
        ended = self.run(*words)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + (ended.stderr if code else "")

    def loop(self, iters: int, *more: str, code: int = 0) -> str:
        few = ("--baseline-seeds=2", "--set=max_runs=2")
        return self("loop", "--menu=own.toml", f"--iters={iters}", *few, *more, code=code)

    def rows(self, kind: str) -> list[dict[str, Any]]:
        lines = (self.campaign / "trajectory.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["kind"] == kind]


def by_hand(own: Own, trial: str) -> tuple[list[tuple[int, float]], float]:
    """Return the script's printed curve and score when a person runs it with a trial's
    arguments."""
    order = own.campaign / "trials" / ".specs" / f"{trial}.json"
    spec = TrialSpec.model_validate_json(order.read_text())
    assert spec.command is not None
    words = filled(spec, spec.command, own.home / "out", 1).argv
    done = subprocess.run(words, cwd=own.checkout, capture_output=True, text=True, check=True)
    curve = re.findall(r"iter (\d+): loss ([\d.]+)", done.stdout)
    score = re.findall(r"val loss ([\d.]+)", done.stdout)[-1]
    return [(int(step), float(loss)) for step, loss in curve], float(score)
