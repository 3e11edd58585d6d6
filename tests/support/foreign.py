"""Provide trajectories as other tools write them."""

import json
import random
from pathlib import Path
from typing import Any

CFG = {
    "n_layer": 24,
    "n_head": 16,
    "d_model": 1024,
    "d_ff": 4096,
    "lr": 3e-4,
    "lr_warmup": 5,
    "grad_clip": 1.0,
    "weight_decay": 0.0,
    "beta1": 0.9,
    "beta2": 0.95,
    "batch_size": 16,
    "seq_len": 1024,
    "precision": "fp8",
}
BASELINE = 10.9554
HEADER = {
    "_meta": "trajectory log; first record is baseline; subsequent records are agent iterations",
    "baseline_val_bpb": BASELINE,
    "baseline_cfg": CFG,
    "accept_delta_frac": 0.005,
}
METRICS = {
    "ok": True,
    "params_m": 354.6,
    "mean_step_ms": 1204.1,
    "peak_gpu_mem_gib": 31.6,
    "train_wall_s": 85.8,
    "val_wall_s": 0.9,
}
SUMMARY = {"stage": "loop_complete", "iters_requested": 9, "best_val_bpb": 10.8534}


def evaluated(iteration: int, knob: str, value: Any, val_bpb: float) -> dict[str, Any]:
    """Return a line of the single-knob loop whose proposal was trained."""
    return {
        "iter": iteration,
        "ts": f"2026-04-25 12:{iteration % 60:02d}:00",
        "stage": "evaluated",
        "verdict_ok": True,
        "proposal": {"knob": knob, "new_value": value, "reason": f"try {knob}"},
        "diff": f"- {knob} = {CFG[knob]}\n+ {knob} = {value}",
        "candidate_cfg": {**CFG, knob: value},
        "eval_metrics": {**METRICS, "val_bpb": val_bpb},
        "val_bpb": val_bpb,
        "baseline_val_bpb": BASELINE,
        "decision": "keep" if val_bpb < BASELINE * 0.995 else "revert",
        "nim_latency_s": 1.2,
        "iter_wall_s": 88.1,
    }


def blocked(iteration: int) -> dict[str, Any]:
    """Return the line of a proposal that the loop's rails refused."""
    return {
        "iter": iteration,
        "ts": "2026-04-25 12:30:00",
        "stage": "blocked",
        "verdict_ok": False,
        "rail": "R3_range",
        "reason": "lr 3 is out of range",
        "proposal": {"knob": "lr", "new_value": 3, "reason": "faster"},
        "raw": "…",
        "nim_latency_s": 1.1,
        "iter_wall_s": 1.2,
    }


def eval_failed(iteration: int) -> dict[str, Any]:
    """Return the line of a run that ended without a score."""
    return {
        "iter": iteration,
        "ts": "2026-04-25 12:31:00",
        "stage": "eval_failed",
        "verdict_ok": True,
        "proposal": {"knob": "n_layer", "new_value": 48, "reason": "deeper"},
        "candidate_cfg": {**CFG, "n_layer": 48},
        "eval_metrics": {"ok": False, "oom": True, "error": "CUDA out of memory"},
        "decision": "revert (eval crash)",
        "baseline_val_bpb": BASELINE,
        "iter_wall_s": 12.0,
    }


def nim_error(iteration: int) -> dict[str, Any]:
    """Return the line of an iteration without a proposal."""
    return {
        "iter": iteration,
        "ts": "2026-04-25 12:32:00",
        "stage": "nim_error",
        "nim_error": "timed out",
        "iter_wall_s": 60.0,
    }


def paused(iteration: int) -> dict[str, Any]:
    """Return the line of a loop that a person stopped."""
    return {
        "iter": iteration,
        "ts": "2026-04-25 12:33:00",
        "stage": "paused",
        "reason": f"SIGTERM received; completed through iter {iteration - 1}",
        "completed_iters": iteration - 1,
        "requested_iters": 50,
    }


def single_knob_lines(iterations: int = 50, seed: int = 0) -> list[dict[str, Any]]:
    """Return a campaign of the single-knob loop, which mostly repeats the same few proposals."""
    rng = random.Random(seed)
    ideas = [
        ("d_model", 768, 10.87),
        ("n_head", 8, 10.96),
        ("d_ff", 6144, 10.99),
        ("lr", 2e-4, 11.1),
        ("n_layer", 8, 10.97),
        ("beta2", 0.9, 10.95),
        ("d_model", 1536, 11.0),
        ("lr_warmup", 20, 10.98),
        ("beta1", 0.85, 10.94),
        ("d_model", 256, 13.76),
    ]
    lines = [HEADER]
    for iteration in range(1, iterations + 1):
        knob, value, truth = rng.choice(ideas)
        lines.append(evaluated(iteration, knob, value, truth * (1 + rng.gauss(0, 0.0018))))
    return [*lines, SUMMARY]


def write_jsonl(path: Path, lines: list[Any]) -> Path:
    """Write strings unchanged and everything else as JSON, one per line."""
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(text + "\n" for text in texts), "utf-8")
    return path


RESULTS_TSV = """commit\tval_bpb\tmemory_gb\tstatus\tdescription
a1b2c3d\t0.997900\t44.0\tkeep\tbaseline
b2c3d4e\t0.993200\t44.2\tkeep\tincrease LR to 0.04
c3d4e5f\t1.005000\t44.0\tdiscard\tswitch to GeLU activation
d4e5f6g\t0.000000\t0.0\tcrash\tdouble model width (OOM)
"""
