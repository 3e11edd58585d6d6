"""Coordinate checks: how a few steps change the activations, at several widths and depths.

After Yang et al. 2022 (arXiv 2203.03466, appendix D.1) and Dey et al. 2025 (arXiv 2505.01618,
figure 7). Under a correct parametrization every layer's output changes as much in a wide or deep
model as in a small one. Under the standard parametrization the change grows.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.configs import config
from trainer.backends.optimizer import optimizer_of
from trainer.backends.torch_gpt import TorchBackend

CPU = torch.device("cpu")
VOCAB = 64
STEPS = 4
WIDTHS = (32, 64, 128)
DEPTHS = (2, 4, 8)


def changes_inside(seed: int, **changes: Any) -> dict[str, float]:
    """Return the root mean square change of the residual stream and the logits.

    The model trains for a few steps on one repeated batch.
    """
    of = config(
        **{
            "n_layer": 2, "d_ff": 4 * changes["d_model"], "n_head": changes["d_model"] // 16,
            "seq_len": 16, "batch_size": 8, "precision": "fp32", "lr": 4e-3, "lr_warmup": 0,
            "grad_clip": 1e9, "weight_decay": 0.0, "tie_embeddings": False, "norm": "rmsnorm",
            **changes,
        }
    )  # fmt: skip
    torch.manual_seed(seed)
    model = TorchBackend().build(of, VOCAB, CPU).train()
    optimizer = optimizer_of(model, of)
    stream_BT = torch.randint(VOCAB, (8, 17), generator=torch.Generator().manual_seed(seed))
    tokens_BT, targets_BT = stream_BT[:, :-1], stream_BT[:, 1:]
    streams: list[torch.Tensor] = []
    model.norm.register_forward_pre_hook(lambda _, inputs: streams.append(inputs[0].detach()))
    with torch.no_grad():
        before = model.logits(tokens_BT)
    for _ in range(STEPS):
        loss = model(tokens_BT, targets_BT)
        loss.backward()
        optimizer.step(loss, of.lr)
    with torch.no_grad():
        after = model.logits(tokens_BT)
    return {
        "stream": float((streams[-1] - streams[0]).square().mean().sqrt()),
        "logits": float((after - before).square().mean().sqrt()),
    }


def slopes(sizes: Sequence[int], runs: list[list[dict[str, float]]]) -> dict[str, float]:
    """Return the slopes of log change against log size."""
    return {
        name: float(
            np.polyfit(
                np.log(sizes),
                [np.mean([math.log(run[name]) for run in seeds]) for seeds in runs],
                1,
            )[0]
        )
        for name in ("stream", "logits")
    }


def by_width(**changes: Any) -> dict[str, float]:
    return slopes(
        WIDTHS, [[changes_inside(s, d_model=width, **changes) for s in (0, 1)] for width in WIDTHS]
    )


def by_depth(**changes: Any) -> dict[str, float]:
    return slopes(
        DEPTHS,
        [
            [changes_inside(s, d_model=32, n_layer=depth, **changes) for s in (0, 1)]
            for depth in DEPTHS
        ],
    )


@pytest.mark.parametrize("tied", [False, True])
def test_changes_are_as_large_at_every_width_under_the_maximal_update_rule(tied: bool) -> None:
    found = by_width(mup_base_width=32, tie_embeddings=tied)
    plain = by_width(tie_embeddings=tied)
    assert abs(found["stream"]) < 0.15
    assert abs(found["logits"]) < 0.3
    assert plain["stream"] > 0.8
    assert plain["logits"] > 0.5


def test_changes_are_as_large_at_every_depth_under_complete_p() -> None:
    found, plain = by_depth(mup_base_depth=2), by_depth()
    assert abs(found["stream"]) < 0.15
    assert plain["stream"] > 0.4
