"""Does the best learning rate stay where it was when the model grows? Real short runs on this CPU.

A narrow model and one four times as wide, a shallow one and one four times as deep, each trained at
rates a factor of two apart, in the standard parametrisation and with a base
(:attr:`trainer.spec.Config.mup_base_width`, ``mup_base_depth``). Each run is annealed, on bytes of
the standard library's sources that it sees once; its score is the mean loss of its last tenth, of
the small model's the mean over three seeds. The best rate is where a parabola through the best of
the grid and its neighbours is lowest.
"""

from __future__ import annotations

import math
import sysconfig
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from bench.figure import Figure
from trainer.backends.torch_gpt import TorchBackend
from trainer.spec import Budget, Config, CurvePoint, make_config
from trainer.training.data import Batches
from trainer.training.schedule import Schedule
from trainer.training.train import TrialStopped, train

STEPS = 120
VOCAB = 256
TEXT_BYTES = 4_000_000
RATES = tuple(2.0**power for power in range(-11, -3))
SMALL: dict[str, Any] = {"n_layer": 2, "d_model": 64}
WIDE: dict[str, Any] = {"n_layer": 2, "d_model": 256}
DEEP: dict[str, Any] = {"n_layer": 8, "d_model": 64}
SMALL_SEEDS = (0, 1, 2)
GOAL = "within 2 ×"


def run() -> list[Figure]:
    """Takes about five minutes on an idle core."""
    torch.set_num_threads(1)
    text = _text()
    figures = []
    # At the base itself a parametrisation changes nothing: one sweep serves all.
    small, _ = _best(text, SMALL_SEEDS, **SMALL)
    for what, grown, based in (
        ("width 64 to 256", WIDE, {"mup_base_width": 64}),
        ("depth 2 to 8", DEEP, {"mup_base_depth": 2}),
    ):
        plain, plain_loss = _best(text, (0,), **grown)
        carried, carried_loss = _best(text, (0,), **grown, **based)
        for name, best, loss in (
            ("standard", plain, plain_loss),
            (", ".join(f"{key} {value}" for key, value in based.items()), carried, carried_loss),
        ):
            ratio = best / small
            has_goal = name != "standard"
            figures.append(
                Figure(
                    f"best rate, {what}, {name}",
                    ratio,
                    "of the small one's",
                    goal=GOAL if has_goal else None,
                    met=abs(math.log2(ratio)) <= 1 if has_goal else None,
                    note=f"{best:.2g} and {small:.2g}; loss at the best of the grid {loss:.3f}",
                )
            )
    return figures


def _best(text: np.ndarray[Any, Any], seeds: tuple[int, ...], **shape: Any) -> tuple[float, float]:
    """The best rate, and the loss at the best of the grid."""
    losses = [fmean(_loss(text, _config(lr=lr, **shape), seed) for seed in seeds) for lr in RATES]
    return vertex([math.log2(lr) for lr in RATES], losses), min(losses)


def vertex(log2_rates: list[float], losses: list[float]) -> float:
    """The rate where a parabola through the lowest point and its neighbours is lowest; the lowest
    point itself at an end of the grid."""
    at = min(range(len(losses)), key=losses.__getitem__)
    if at in {0, len(losses) - 1} or not all(map(math.isfinite, losses[at - 1 : at + 2])):
        return float(2.0 ** log2_rates[at])
    left, middle, right = losses[at - 1 : at + 2]
    step = log2_rates[at + 1] - log2_rates[at]
    offset = 0.5 * step * (left - right) / (left - 2 * middle + right)
    return float(2.0 ** (log2_rates[at] + offset))


def _config(**changes: Any) -> Config:
    return make_config(
        {
            "n_head": changes["d_model"] // 16,
            "d_ff": 4 * changes["d_model"],
            "activation": "gelu",
            "norm": "rmsnorm",
            "positions": "rotary",
            "tie_embeddings": False,
            "lr_warmup": 12,
            "lr_min_ratio": 0.1,
            "grad_clip": 1.0,
            "weight_decay": 0.0,
            "beta1": 0.9,
            "beta2": 0.95,
            "batch_size": 16,
            "seq_len": 32,
            "precision": "fp32",
            **changes,
        }
    )


def _loss(text: np.ndarray[Any, Any], config: Config, seed: int) -> float:
    torch.manual_seed(seed)
    device = torch.device("cpu")
    model = TorchBackend().build(config, VOCAB, device)
    batches = Batches(
        text, seed=seed, batch_size=config.batch_size, seq_len=config.seq_len, device=device
    )
    points: list[CurvePoint] = []
    report: Callable[[CurvePoint], None] = points.append
    try:
        train(
            model,
            batches,
            Schedule(config, Budget(amount=STEPS), None),
            log_every=1,
            prune=None,
            report=report,
        )
    except TrialStopped:
        return math.inf
    return fmean(point.loss for point in points[-STEPS // 10 :])


def _text() -> np.ndarray[Any, Any]:
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    joined = b"".join(path.read_bytes() for path in sources)[:TEXT_BYTES]
    return np.frombuffer(joined, dtype=np.uint8).astype(np.int64)
