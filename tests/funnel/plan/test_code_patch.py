"""Check that the patch for Megatron-LM holds the winner's functions, and tests others by them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from funnel.plan.projection import code_patch
from tests.support.configs import config


def test_the_patch_runs_and_compares_a_counterpart_with_the_reference() -> None:
    codes = {
        "code.activation": "return F.relu(x).square()",
        "code.schedule": "return min_ratio + 1 / step",
        "code.residual": "def residual(x, branch, layer, n_layer, *, gain: D = 0.5):\n"
        "    return x + gain * branch",
    }
    space: dict[str, Any] = {}
    exec(code_patch(config(activation="gelu", **codes)), space)
    x = torch.linspace(-2, 2, 9)
    space["same"]("activation", lambda x: x.clamp(min=0) ** 2, x)
    with pytest.raises(AssertionError):
        space["same"]("activation", torch.relu, x)
    assert space["schedule"](2, 100, 10) == pytest.approx(config().lr_min_ratio + 0.5)
    space["same"]("residual", lambda x, b, i, n: x + b / 2, x, x, 0, 4)
