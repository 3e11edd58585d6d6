"""Commands as trials: what a start costs, and whether the loop records what a script prints.

With a checkout of karpathy/nanoGPT its train.py, unmodified, goes through ten iterations of the
loop. Every trial is then made again by hand, outside the sandbox and without this product: the same
arguments in the same order, in the checkout, its output read by the two expressions below. The
scores and every point of every curve must be the same.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from bench.figure import Figure
from tests.support.commands import command, command_spec, script
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.trial_files import read_curve
from trainer.spec import CommandOk, TrialSpec

STARTS = 5
ITERATIONS = 10
_CURVE = re.compile(r"^iter (\d+): loss ([0-9.]+),", re.MULTILINE)
_SCORE = re.compile(r"^step \d+: train loss [0-9.]+, val loss ([0-9.]+)", re.MULTILINE)

_SCRIPT = """
import time
def main():
    print("main", time.monotonic())
    import torch
    print("torch", time.monotonic())
    print("val loss 1.0")
if __name__ == "__main__":
    main()
"""
_SEEDED = """\
# nanoGPT has no option for its seed: its configurator runs this file before the seed is set.
import os
_manual_seed = torch.manual_seed
torch.manual_seed = lambda _: _manual_seed(int(os.environ["AR_SEED"]))
"""
_MENU = """
name = "nanogpt"
[trainer]
command = [
  "{python}", "train.py", "config/seeded.py", "--out_dir={out}", "--dataset=own",
  "--device={device}", "--compile=False", "--dtype=float32", "--dropout=0.0",
  "--eval_interval=10", "--eval_iters=2", "--log_interval=1", "--gradient_accumulation_steps=1",
  "--block_size=32", "--batch_size=4", "--n_layer={n_layer}", "--n_head=4", "--n_embd=64",
  "--learning_rate={learning_rate}", "--min_lr={min_lr}", "--warmup_iters={warmup_iters}",
  "--beta2={beta2}", "--max_iters={steps}", "--lr_decay_iters={horizon}",
]
env = { AR_SEED = "{seed}" }
score = { pattern = 'val loss ([0-9.]+)', take = "last" }
unit = "nats per token"
curve = { pattern = 'iter (\\d+): loss ([0-9.]+)' }
[knobs.n_layer]
type = "int"
low = 1
high = 4
default = 2
[knobs.learning_rate]
type = "float"
low = 1e-4
high = 1e-2
scale = "log"
default = 1e-3
[knobs.warmup_iters]
type = "int"
low = 0
high = 10
default = 5
[knobs.beta2]
type = "float"
low = 0.9
high = 0.999
default = 0.95
[tied]
min_lr = "learning_rate / 10"
[campaign]
budget = "20 steps"
threads = 1
"""


def run(nanogpt: Path | None) -> list[Figure]:
    """Starts; and nanoGPT's train.py, where its checkout is given."""
    with tempfile.TemporaryDirectory() as directory:
        figures = _starts(Path(directory))
        if nanogpt is not None:
            figures += _nanogpt(nanogpt, Path(directory) / "nanogpt")
    return figures


# --- starts -------------------------------------------------------------------------------------


def _starts(folder: Path) -> list[Figure]:
    place = script(folder / "script", _SCRIPT)
    cold = _timed(folder / "cold", place, main=None, preload=())
    warm = _timed(folder / "warm", place, main="main", preload=("torch",))
    cold_s, warm_ms, over_ms = (
        median(run["torch"] for run in cold),
        1e3 * median(run["torch"] for run in warm),
        1e3 * median(run["over"] for run in warm),
    )
    how = f"request to torch imported, median of {STARTS}, in the sandbox"
    return [
        Figure("a command's start, cold", cold_s, "s", note=how),
        Figure(
            "a command's start, fork server",
            warm_ms,
            "ms",
            goal="<= 20",
            met=warm_ms <= 20,
            note=f'{how}, main = "main", preload = ["torch"]',
        ),
        Figure("overhead after its last word", over_ms, "ms", note="to the result in hand"),
    ]


def _timed(trials: Path, place: Path, **changes: object) -> list[dict[str, float]]:
    told = command(argv=(sys.executable, "train.py"), directory=str(place), curve=None, **changes)
    runs = []
    with LocalExecutor(entry=COMMAND_ENTRY) as executor:
        for number in range(STARTS + 1):  # the first loads what is to be preloaded
            began = time.monotonic()
            trial = trials / "trials" / f"t{number:06d}"
            result = executor.run(command_spec(command=told, wall_s=120), trial).result
            ended = time.monotonic()
            assert isinstance(result, CommandOk), result
            said = dict(re.findall(r"^(\w+) ([\d.]+)$", (trial / "trainer.log").read_text(), re.M))
            torch_at = float(said["torch"])
            runs.append({"torch": torch_at - began, "over": ended - torch_at})
    return runs[1:]


# --- nanoGPT ------------------------------------------------------------------------------------


def _nanogpt(checkout: Path, stage: Path) -> list[Figure]:
    shutil.copytree(checkout, stage, ignore=shutil.ignore_patterns(".git", "data", "assets"))
    _write_text(stage / "data" / "own")
    (stage / "config" / "seeded.py").write_text(_SEEDED)
    (stage / "nanogpt.toml").write_text(_MENU)
    words = f"loop --menu nanogpt.toml --iters {ITERATIONS} --no-confirm --baseline-seeds 2"
    subprocess.run(
        [sys.executable, "-m", "autoresearch", *words.split(), "--max-runs", "2"],
        cwd=stage,
        check=True,
    )
    campaign = stage / "runs" / "nanogpt"
    rows = [json.loads(line) for line in (campaign / "trajectory.jsonl").open()]
    ended = [one for row in rows for one in [*row.get("trials", []), row.get("trial")] if one]
    trials = [one["trial_id"] for one in ended if one["result"]["status"] == "scored"]
    alike = sum(_same_by_hand(campaign / "trials", trial, stage) for trial in trials)
    return [
        Figure(
            "nanoGPT by hand and by the loop: curve and score the same",
            alike,
            f"of {len(trials)} trials",
            goal="all",
            met=alike == len(trials) > ITERATIONS,
            note=f"train.py unmodified, {ITERATIONS} iterations of 20 steps, 1 thread; "
            f"{len(ended) - len(trials)} trials failed",
        )
    ]


def _write_text(data: Path) -> None:
    """Python's own modules, a character a token, as data/shakespeare_char/prepare.py writes it."""
    data.mkdir(parents=True)
    sources = sorted(Path(os.__file__).parent.glob("*.py"))[:40]
    text = "".join(path.read_text("utf-8", "ignore") for path in sources)
    ids = {one: place for place, one in enumerate(sorted(set(text)))}
    tokens = np.array([ids[one] for one in text], dtype=np.uint16)
    cut = len(tokens) * 9 // 10
    tokens[:cut].tofile(data / "train.bin")
    tokens[cut:].tofile(data / "val.bin")
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": len(ids)}))


def _same_by_hand(trials: Path, trial: str, stage: Path) -> bool:
    spec = TrialSpec.model_validate_json((trials / ".specs" / f"{trial}.json").read_text())
    result = json.loads((trials / trial / "result.json").read_text())
    values = spec.config.said
    argv = [
        word.format(out=stage / "out", device="cpu", steps=20, horizon=spec.horizon_steps, **values)
        for word in (spec.command.argv if spec.command else ())
    ]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        argv,
        cwd=stage,
        env={**os.environ, **threads, "AR_SEED": str(spec.seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    curve = [(int(step), float(loss)) for step, loss in _CURVE.findall(done.stdout)]
    ours = [(point.step, point.loss) for point in read_curve(trials / trial)]
    same = bool(curve) and ours == curve
    return same and result["score"] == float(_SCORE.findall(done.stdout)[-1])
