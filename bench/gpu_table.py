"""Race our models on a GPU against the same models as ``torch.compile`` makes them.

The table has nanoGPT's shape and the modern shape, each plain, compiled and ours; a trial's time as
in a campaign; and twelve drawn configs, of which the worst ratio is the figure to quote. Every
measurement is a new process with an empty cache of compiled code, so its first steps show what a
cold start costs. Matrices train by AdamW in all of them.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from bench.gpu_race import DEFAULT, DidNotRun, Ours, Task
from bench.gpu_session import cpu_plan, gpu_plan
from bench.reference_gpt import ReferenceGPT
from trainer.backends.optimizer import optimizer_of
from trainer.backends.torch_gpt import TorchBackend
from trainer.corpus import prepare
from trainer.executors.local import LocalExecutor
from trainer.machine.device import peak_mem_gib
from trainer.schema import Config, make_config
from trainer.training.child import born_at

ROOT = Path(__file__).parents[1]
FIRST, STEPS = 8, 24
"""Steps of the cold start, and those whose median counts."""
TRIAL_STEPS = 60
MOST_LAYERS = 6
"""Layers of a drawn config at most: compiling all of them would take the whole session."""
GUESS_S = {"plain": 20.0, "compiled": 70.0, "ours": 20.0, "drawn": 45.0}

COMMON: dict[str, Any] = {
    "lr": 3e-4, "lr_warmup": 5, "lr_min_ratio": 0.1, "grad_clip": 1.0, "weight_decay": 0.1,
    "beta1": 0.9, "beta2": 0.95, "precision": "bf16",
    "activation": "gelu", "norm": "layernorm", "positions": "learned", "tie_embeddings": True,
}  # fmt: skip
MODERN_PARTS = {
    "activation": "relu2", "norm": "rmsnorm", "positions": "rotary", "qk_norm": True,
    "tie_embeddings": False,
}  # fmt: skip


def _shape(layers: int, heads: int, width: int, hidden: int, batch: int, length: int) -> Any:
    return {
        "n_layer": layers, "n_head": heads, "d_model": width, "d_ff": hidden,
        "batch_size": batch, "seq_len": length,
    }  # fmt: skip


SHAPES: dict[str, tuple[dict[str, Any], int]] = {
    "GPT-2 style, 354 M": (_shape(24, 16, 1024, 4096, 16, 1024), 50_257),
    "modern, 50 M": ({**MODERN_PARTS, **_shape(8, 4, 512, 2048, 64, 2048)}, 8192),
}
"""Changes to :data:`COMMON`, and the vocabulary."""
DRAWN: tuple[dict[str, Any], ...] = (
    {**_shape(34, 32, 512, 1024, 16, 512)},
    {**_shape(39, 4, 512, 4096, 2, 2048)},
    {**_shape(25, 32, 1536, 2048, 8, 1024)},
    {**_shape(41, 32, 1536, 6144, 2, 1024)},
    {
        **MODERN_PARTS,
        **_shape(19, 32, 1024, 2048, 8, 2048),
        "activation": "swiglu",
        "qk_norm": False,
        "tie_embeddings": True,
    },
    {
        **MODERN_PARTS,
        **_shape(32, 4, 512, 8192, 16, 1024),
        "activation": "relu2",
        "qk_norm": True,
        "tie_embeddings": False,
    },
    {
        **MODERN_PARTS,
        **_shape(33, 16, 2048, 8192, 2, 1024),
        "activation": "swiglu",
        "qk_norm": True,
        "tie_embeddings": True,
    },
    {
        **MODERN_PARTS,
        **_shape(30, 16, 256, 8192, 8, 1024),
        "activation": "swiglu",
        "qk_norm": True,
        "tie_embeddings": True,
    },
    {
        **MODERN_PARTS,
        **_shape(6, 8, 1024, 8192, 16, 2048),
        "activation": "gelu",
        "qk_norm": False,
        "tie_embeddings": True,
    },
    {
        **MODERN_PARTS,
        **_shape(8, 18, 1152, 4032, 16, 1024),
        "activation": "relu2",
        "n_kv_head": 9,
        "qk_norm": True,
        "norm": "layernorm",
        "tie_embeddings": False,
    },
    {
        **MODERN_PARTS,
        **_shape(8, 12, 768, 1344, 16, 2048),
        "activation": "gelu",
        "n_kv_head": 6,
        "qk_norm": True,
        "norm": "layernorm",
        "tie_embeddings": False,
    },
    {
        **MODERN_PARTS,
        **_shape(8, 8, 1024, 1792, 16, 1024),
        "activation": "gelu",
        "qk_norm": True,
        "norm": "layernorm",
        "tie_embeddings": False,
    },
)
"""Drawn once, uniformly, from spark-354m, from spark-modern, and around a llama proxy, among those
with 0.1 to 1.25 times the arithmetic of spark-354m's defaults."""
SMALL = {"n_layer": 1, "batch_size": 2, "seq_len": 32, "d_ff": 64}


def shape_of(name: str, *, small: bool) -> tuple[Config, int]:
    """Return a shape's config and vocabulary; with the same parts, but small, for a rehearsal."""
    if name in SHAPES:
        changes, vocab_size = SHAPES[name]
    else:
        drawn = DRAWN[int(name)]
        changes, vocab_size = {**drawn, "n_layer": min(drawn["n_layer"], MOST_LAYERS)}, 50_257
    if small:
        changes, vocab_size = {**changes, **SMALL, "d_model": 8 * changes["n_head"]}, 300
    return make_config({**COMMON, **changes}), vocab_size


# --- one process --------------------------------------------------------------------------------


def measure(name: str, how: str, device_name: str) -> dict[str, float]:
    """Train a model; return its first steps' time from the process's birth, a step's, its peak."""
    device = torch.device(device_name)
    config, vocab_size = shape_of(name, small=device.type == "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    shape = (FIRST + STEPS, config.batch_size, config.seq_len)
    batches_SBT = torch.randint(vocab_size, shape, device=device)
    if how == "ours":
        # A rehearsal runs the kernels' own path, in torch's operators.
        kernels = True if device.type == "cpu" else None
        step = our_step(config, vocab_size, device, kernels)
    else:
        step = peer_step(config, vocab_size, device, _compiler(name, how, device))
    for tokens_BT in batches_SBT[:FIRST]:
        step(tokens_BT)
    _wait(device)
    first_s = time.monotonic() - born_at()
    steps_ms = []
    for tokens_BT in batches_SBT[FIRST:]:
        began = time.perf_counter()
        step(tokens_BT)
        _wait(device)
        steps_ms.append(1000 * (time.perf_counter() - began))
    return {"first_s": first_s, "step_ms": median(steps_ms), "peak_gib": peak_mem_gib(device)}


def _compiler(name: str, how: str, device: torch.device) -> str | None:
    """Return the compiler's backend; None: uncompiled. A rehearsal runs Inductor once."""
    if how != "compiled":
        return None
    return "inductor" if device.type == "cuda" or name.startswith("modern") else "aot_eager"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def our_step(
    config: Config, vocab_size: int, device: torch.device, kernels: bool | None = None
) -> Callable[[Tensor], None]:
    """Return a step of the product's model on random weights."""
    model = TorchBackend(kernels=kernels).build(config, vocab_size, device).train()
    optimizer = optimizer_of(model, config)

    def step(tokens_BT: Tensor) -> None:
        loss = model(tokens_BT, tokens_BT)
        loss.backward()
        optimizer.step(loss, config.lr)

    return step


def peer_step(
    config: Config, vocab_size: int, device: torch.device, backend: str | None
) -> Callable[[Tensor], None]:
    """Return a step of the reference, which a backend of ``torch.compile`` compiles or none."""
    with device:
        model = ReferenceGPT(config, vocab_size)
    model.draw(config)
    optimizer = torch.optim.AdamW(model.parameters(), config.lr, fused=True)
    run = model if backend is None else torch.compile(model, backend=backend)

    def step(tokens_BT: Tensor) -> None:
        loss = run(tokens_BT, tokens_BT)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


# --- all of them --------------------------------------------------------------------------------


def run_table(out: Path, device: str, limit_s: float, *, rehearse: bool) -> int:
    """Measure the table within the limit, the most important first; print it and keep it."""
    began_s = time.monotonic()
    device = "cpu" if rehearse else device
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, dict[str, float]]] = {}
    trials = "trials an hour: not measured"
    for name, how in _order(rehearse=rehearse):
        if name == "0" and how == "ours":
            trials = _trials(out, device, rehearse=rehearse)
            print(trials, flush=True)
        left_s = limit_s - (time.monotonic() - began_s)
        if left_s < (0 if rehearse else GUESS_S["drawn" if name.isdigit() else how]):
            print(f"{name}, {how}: skipped, {left_s:.0f} s are left", flush=True)
            continue
        one = _in_a_process(name, how, device, left_s)
        print(f"[{time.monotonic() - began_s:4.0f} s] {name}, {how}: {one}", flush=True)
        if isinstance(one, dict):
            found.setdefault(name, {})[how] = one
    lines = [*table_lines(found), trials]
    print("\n".join(lines))
    (out / "table.json").write_text(json.dumps(found, indent=1))
    (out / "table.md").write_text("\n".join(lines) + "\n")
    return 0 if found else 1


def _order(*, rehearse: bool) -> list[tuple[str, str]]:
    """Return the measurements; a rehearsal compiles two of the drawn configs."""
    named = [(name, how) for name in SHAPES for how in ("ours", "compiled", "plain")]
    drawn = range(0, len(DRAWN), 6) if rehearse else range(len(DRAWN))
    return named + [(str(number), how) for number in drawn for how in ("ours", "compiled")]


def _trials(out: Path, device: str, *, rehearse: bool) -> str:
    """Return the trials of the menu's defaults that a lane does in an hour, started as a campaign's
    are."""
    plan = cpu_plan(1) if rehearse else gpu_plan(device, 1)
    corpus = prepare(
        ["stdlib"],
        cache_dir=out / "corpora",
        tokenizer=plan.tokenizer,
        heldout_bytes=plan.heldout_bytes,
    )
    task = Task(plan.config, corpus, plan.device, plan.steps, out.absolute() / str(time.time_ns()))
    try:
        with LocalExecutor(allow_unsandboxed=True) as warm:
            laps = [Ours(DEFAULT).lap(task, warm, number, 120.0) for number in range(4)]
    except DidNotRun as reason:
        return f"trials an hour: not measured: {reason}"
    seconds = median(lap.wall_s for lap in laps[1:])
    return (
        f"trials an hour of the menu's defaults, one lane: {3600 / seconds:.0f} ({seconds:.2f} s)"
    )


def _in_a_process(name: str, how: str, device: str, limit_s: float) -> dict[str, float] | str:
    with tempfile.TemporaryDirectory() as cache:
        environ = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache}
        command = [sys.executable, "-m", "bench.gpu_table", name, how, device]
        try:
            ended = subprocess.run(
                command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False,
                timeout=max(1.0, limit_s),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "not done in time"
    if ended.returncode:
        return (ended.stderr.strip().splitlines() or ["it failed without a word"])[-1]
    one: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return one


def table_lines(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """Return a line for each shape with its ratios, and the worst of the drawn ones."""
    lines = [
        "",
        "| shape | | ms a step | peak GiB | first 60 steps, s |",
        "| --- | --- | --- | --- | --- |",
    ]
    worst = {}
    for name, ways in found.items():
        for how, one in ways.items():
            lines.append(_row(name, how, one["step_ms"], one["peak_gib"], _cold_s(one)))
        if "ours" in ways and "compiled" in ways:
            ours, peer = ways["ours"], ways["compiled"]
            ratio = ours["step_ms"] / peer["step_ms"]
            memory = ours["peak_gib"] / peer["peak_gib"] if peer["peak_gib"] else 0.0
            lines.append(
                _row(name, "ours / compiled", ratio, memory, _cold_s(ours) / _cold_s(peer))
            )
            if name.isdigit():
                worst[name] = ratio
    if worst:
        name = max(worst, key=lambda one: worst[one])
        lines.append(f"\nWorst of {len(worst)} drawn: {worst[name]:.2f} ({DRAWN[int(name)]})")
    return lines


def _row(name: str, how: str, step: float, peak: float, first: float) -> str:
    return f"| {name} | {how} | {step:.2f} | {peak:.2f} | {first:.2f} |"


def _cold_s(one: Mapping[str, float]) -> float:
    """Return the seconds from the start of a process to the end of a trial's steps."""
    return one["first_s"] + (TRIAL_STEPS - FIRST) * one["step_ms"] / 1000


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
