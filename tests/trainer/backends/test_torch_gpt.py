"""Test the reference model: initialization, attention in bf16, grouped queries, products."""

import argparse
import inspect
import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from agent.menu.files import load_menu
from tests.support.configs import CHOICES
from tests.support.gpts import CPU, build
from trainer.backends import blocks, products
from trainer.backends.blocks import SHORT_SEQUENCE, attend
from trainer.backends.torch_gpt import TorchBackend
from trainer.schema import gpt


@pytest.mark.parametrize("d_model", [64, 512])
@pytest.mark.parametrize("changes", CHOICES, ids=str)
def test_first_loss_is_even_odds_on_repetitive_text(changes: dict[str, Any], d_model: int) -> None:
    """Source code is full of runs of spaces, which an untrained tied head predicts correctly."""
    model = build(d_model=d_model, d_ff=2 * d_model, seq_len=128, **changes)
    source = inspect.getsource(argparse).encode()[: 16 * 129]
    text_BT = torch.tensor(list(source)).view(16, 129)
    with torch.no_grad():
        loss = model(text_BT[:, :-1], text_BT[:, 1:]).item()
    assert loss == pytest.approx(math.log(257), rel=0.05)


@pytest.mark.parametrize("length", [1, 7, 64, SHORT_SEQUENCE + 1])
def test_attention_in_bf16_is_attention(length: int) -> None:
    q, k, v = (torch.randn(2, 2, length, 8).bfloat16().requires_grad_() for _ in range(3))
    y = attend(q, k, v)
    exact = functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), is_causal=True
    )
    assert y.dtype is torch.bfloat16
    torch.testing.assert_close(y.double(), exact, rtol=0.03, atol=0.03)
    for got, expected in zip(
        torch.autograd.grad(y.double().square().sum(), (q, k, v)),
        torch.autograd.grad(exact.square().sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, rtol=0.1, atol=0.15)


HALF_ULP = 2.0**-8
"""Maximum relative rounding error of bf16, which has eight bits of mantissa with the hidden one."""


@pytest.fixture
def without_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulate a CPU from before AVX-512, whatever this one is."""
    for module in (products, blocks):
        monkeypatch.setattr(module, "cpu_multiplies_bf16", lambda: False)


def exact(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left.double() @ right.double()


@pytest.mark.usefixtures("without_bf16")
def test_a_widened_product_and_its_gradients_are_rounded_once() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 96).bfloat16().requires_grad_()
    weight = torch.randn(48, 96, requires_grad=True)
    upstream = torch.randn(64, 48).bfloat16()
    y = products.linear(x, weight)
    torch.autograd.backward(y, upstream)
    rounded = weight.detach().bfloat16()
    assert y.dtype is torch.bfloat16 and x.grad is not None and weight.grad is not None
    assert weight.grad.dtype is torch.float32
    for found, wanted in (
        (y, exact(x, rounded.t())),
        (x.grad, exact(upstream, rounded)),
        (weight.grad, exact(upstream.t(), x)),
    ):
        # One rounding to bf16, plus the error of fp32's sums.
        assert ((found.double() - wanted).abs() <= wanted.abs() * HALF_ULP + 1e-4).all()


def test_the_model_trains_alike_on_either_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the smallest menu's defaults the loss and every gradient agree to within bf16's
    precision."""
    baseline = gpt(load_menu("cpu-tiny").baseline)
    config = baseline.model_copy(update={"batch_size": 2, "seq_len": 32})
    assert config.precision == "bf16"

    def trained(native: bool) -> tuple[float, torch.Tensor]:
        for module in (products, blocks):
            monkeypatch.setattr(module, "cpu_multiplies_bf16", lambda: native)
        torch.manual_seed(0)
        model = TorchBackend().build(config, 256, CPU)
        tokens = torch.randint(0, 256, (2, 33))
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        return loss.item(), torch.cat(gradients)

    (native_loss, native), (loss, widened) = trained(True), trained(False)
    assert loss == pytest.approx(native_loss, rel=1e-4)
    assert (widened - native).norm() <= 0.02 * native.norm()
