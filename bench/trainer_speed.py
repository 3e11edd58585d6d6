"""Compare the trainer with karpathy/nanoGPT's own train.py: one shape, batch, text and machine.

Each trains in its own process, and they alternate, so that other load on the machine affects all of
them. nanoGPT's script runs unmodified with command-line overrides. On CPU it computes in fp32
whatever the value of ``--dtype``, so our fp32 is the same arithmetic and our bf16 the same task.
"""

import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
import torch

from bench.figure import Figure
from bench.gpu_table import our_step, peer_step, shape_of
from tests.support.configs import config
from trainer.corpus import Corpus, prepare
from trainer.executors.local import LocalExecutor
from trainer.schema import Budget, CurvePoint, TrialOk, TrialSpec, parse_result

ROUNDS = 3
STEPS = 80
UNCOUNTED = 20
"""Steps at the start that every median leaves out."""
WARM_TRIALS = 10
MODERN_LAPS = 9

_REPOSITORY = Path(__file__).parents[1]
_NANOGPT_ITERATION = re.compile(r"^iter \d+: loss [\d.]+, time ([\d.]+)ms", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Sample:
    """One process's training."""

    step_ms: float
    """Median over the steady steps."""
    peak_mib: float
    setup_s: float | None = None


def run(nanogpt: Path | None) -> list[Figure]:
    """Measure speed, memory and set-up; compare with the checkout in ``nanogpt`` if given."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = prepare(["stdlib"], cache_dir=folder / "corpora", tokenizer="bytes")
        contenders: dict[str, Callable[[Path], _Sample]] = {
            "bf16": lambda out: _train(_spec(corpus, "bf16"), out),
            "fp32": lambda out: _train(_spec(corpus, "fp32"), out),
        }
        if nanogpt is not None:
            checkout = _stage_nanogpt(nanogpt, folder / "nanogpt", corpus)
            contenders["nanoGPT"] = lambda out: _train_nanogpt(checkout, corpus, out)
        samples: dict[str, list[_Sample]] = {who: [] for who in contenders}
        for lap in range(ROUNDS):
            for who, contend in contenders.items():
                samples[who].append(contend(folder / f"{who}-{lap}"))
        warm_ms, how = _warm_setup_ms(corpus, folder / "warm")
    return [
        *_speed_figures(samples),
        *_ratio_figures(samples),
        *_memory_figures(samples),
        *_modern_figures(),
        Figure(
            "set-up of a trial, fork server",
            warm_ms,
            "ms",
            note=f"fork to first step: sandbox, corpus, model; median of {WARM_TRIALS}; {how}",
        ),
        Figure(
            "set-up of a trial, cold",
            1e3 * median(s.setup_s for s in samples["bf16"] if s.setup_s is not None),
            "ms",
            note="the same for `python -m trainer`, importing torch included",
        ),
    ]


# --- what is measured -------------------------------------------------------------------------


def _spec(corpus: Corpus, precision: Literal["fp32", "bf16"], steps: int = STEPS) -> TrialSpec:
    return TrialSpec(
        trial_id=precision,
        config=config(lr_warmup=5, precision=precision),
        seed=1,
        corpus_dir=str(corpus.directory),
        corpus_sha256=corpus.info.sha256,
        budget=Budget(amount=steps),
    )


def _train(spec: TrialSpec, out: Path) -> _Sample:
    out.mkdir()
    (out / "spec.json").write_text(spec.model_dump_json())
    log = out / "log"
    peak_mib = _run([sys.executable, "-m", "trainer", str(out / "spec.json")], _REPOSITORY, log)
    result = parse_result((out / "result.json").read_bytes())
    assert isinstance(result, TrialOk), result
    lines = (out / "curve.jsonl").read_text().splitlines()
    ends_s = [CurvePoint.model_validate_json(line).elapsed_s for line in lines]
    steps_ms = [1e3 * (b - a) for a, b in pairwise(ends_s)]
    return _Sample(median(steps_ms[UNCOUNTED:]), peak_mib, result.setup_s)


def _warm_setup_ms(corpus: Corpus, folder: Path) -> tuple[float, str]:
    setups_ms = []
    with LocalExecutor(allow_unsandboxed=True) as executor:
        for number in range(WARM_TRIALS + 1):
            spec = _spec(corpus, "bf16", steps=1)
            finished = executor.run(spec, folder / str(number))
            assert isinstance(finished.result, TrialOk), finished.result
            setups_ms.append(1e3 * finished.result.setup_s)
        how = executor.describe()
    return median(setups_ms[1:]), how


# --- the modern shape ---------------------------------------------------------------------------


def _modern_figures() -> list[Figure]:
    """Race a step of the modern shape against the reference, plain and compiled, turn by turn."""
    config, vocab_size = shape_of("modern, 50 M", small=False)
    cut = {"n_layer": 2, "batch_size": 1, "seq_len": 512, "precision": "fp32"}
    config, cpu = config.model_copy(update=cut), torch.device("cpu")
    steps = {
        "ours": our_step(config, vocab_size, cpu),
        "plain": peer_step(config, vocab_size, cpu, None),
        "compiled": peer_step(config, vocab_size, cpu, "inductor"),
    }
    tokens_BT = torch.randint(vocab_size, (1, 512))
    taken: dict[str, list[tuple[float, float]]] = {who: [] for who in steps}
    for lap in range(MODERN_LAPS + 2):
        for who, step in steps.items():
            began, used = time.perf_counter(), time.process_time()
            step(tokens_BT)
            passed = time.perf_counter() - began, time.process_time() - used
            if lap >= 2:
                taken[who].append(passed)
    middle = {
        who: [median(part) for part in zip(*both, strict=True)] for who, both in taken.items()
    }
    note = f"2 of its 8 layers, 1 × 512 of 8,192 words, fp32; median of {MODERN_LAPS}, turn by turn"
    figures = [
        Figure(f"modern shape, {who}", 512 / wall, "tokens/s", note=f"{note}; {used:.2f} s CPU")
        for who, (wall, used) in middle.items()
    ]
    for place, what in enumerate(("tokens/s", "processor time")):
        ratio = middle["compiled"][place] / middle["ours"][place]
        goal = "≥ 1.1" if place == 0 else ""
        name = f"modern shape against its compiled model, {what}"
        figures.append(Figure(name, ratio, "×", goal, ratio >= 1.1 if goal else None, note))
    return figures


# --- nanoGPT ----------------------------------------------------------------------------------


def _stage_nanogpt(checkout: Path, stage: Path, corpus: Corpus) -> Path:
    """Create a folder that train.py accepts as a checkout, with our text in its dataset format."""
    data = stage / "data" / "bench"
    data.mkdir(parents=True)
    for name in ("train.py", "model.py", "configurator.py"):
        (stage / name).symlink_to((checkout / name).resolve(strict=True))
    np.asarray(corpus.train).astype(np.uint16).tofile(data / "train.bin")
    np.asarray(corpus.heldout).astype(np.uint16).tofile(data / "val.bin")
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": corpus.info.vocab_size}))
    return stage


def _train_nanogpt(stage: Path, corpus: Corpus, out: Path) -> _Sample:
    recipe = _spec(corpus, "fp32").gpt
    out.mkdir()
    overrides = {
        "device": "cpu",
        "compile": False,
        "dtype": "float32",
        "dataset": "bench",
        "out_dir": out,
        "n_layer": recipe.n_layer,
        "n_head": recipe.n_head,
        "n_embd": recipe.d_model,
        "block_size": recipe.seq_len,
        "batch_size": recipe.batch_size,
        "gradient_accumulation_steps": 1,
        "dropout": 0.0,
        "bias": False,
        "learning_rate": recipe.lr,
        "min_lr": recipe.lr * recipe.lr_min_ratio,
        "warmup_iters": recipe.lr_warmup,
        "lr_decay_iters": 1000,
        "weight_decay": recipe.weight_decay,
        "grad_clip": recipe.grad_clip,
        "max_iters": STEPS,
        "log_interval": 1,
        "eval_interval": 1_000_000,
        "eval_iters": 1,
        "always_save_checkpoint": False,
    }
    arguments = [f"--{name}={value}" for name, value in overrides.items()]
    log = out / "log"
    peak_mib = _run([sys.executable, "train.py", *arguments], stage, log)
    steps_ms = [float(ms) for ms in _NANOGPT_ITERATION.findall(log.read_text())]
    if len(steps_ms) < STEPS:
        raise RuntimeError(f"nanoGPT printed {len(steps_ms)} iterations; see {log}")
    return _Sample(median(steps_ms[UNCOUNTED:]), peak_mib)


def _run(command: list[str], cwd: Path, log: Path) -> float:
    """Run ``command`` with its output in ``log``; return its peak resident memory in MiB."""
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=cwd, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[:3]} failed:\n{log.read_text()[-2000:]}")
    return usage.ru_maxrss / 1024


# --- what is said about it --------------------------------------------------------------------


def _speed_figures(samples: dict[str, list[_Sample]]) -> list[Figure]:
    config_note = f"4 layers, d_model 128, 8 × 128 bytes; median of {ROUNDS} runs"
    figures = []
    for who, runs in samples.items():
        speeds = sorted(8 * 128 / run.step_ms * 1e3 for run in runs)
        note = f"{config_note}, {speeds[0]:,.0f} to {speeds[-1]:,.0f}"
        figures.append(Figure(f"training, {who}", median(speeds), "tokens/s", note=note))
    return figures


def _ratio_figures(samples: dict[str, list[_Sample]]) -> list[Figure]:
    if "nanoGPT" not in samples:
        return []
    theirs = samples["nanoGPT"]
    ratios = {
        who: sorted(b.step_ms / a.step_ms for a, b in zip(samples[who], theirs, strict=True))
        for who in ("bf16", "fp32")
    }
    bf16, fp32 = ratios["bf16"], ratios["fp32"]
    return [
        Figure(
            "against nanoGPT, bf16",
            median(bf16),
            "×",
            goal=">= 2",
            met=median(bf16) >= 2,
            note=f"turn by turn {bf16[0]:.2f} to {bf16[-1]:.2f}; nanoGPT is fp32 on CPU",
        ),
        Figure(
            "against nanoGPT, fp32",
            median(fp32),
            "×",
            note=f"turn by turn {fp32[0]:.2f} to {fp32[-1]:.2f}; bound by the same fp32 products",
        ),
    ]


def _memory_figures(samples: dict[str, list[_Sample]]) -> list[Figure]:
    return [
        Figure(
            f"peak memory, {who}",
            median(run.peak_mib for run in runs),
            "MiB",
            note="resident, of the whole process" + ("" if who == "nanoGPT" else ", scoring too"),
        )
        for who, runs in samples.items()
    ]
