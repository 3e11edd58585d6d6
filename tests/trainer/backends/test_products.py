"""bf16 products on a CPU without bf16 support agree with those on a CPU with it, except for
rounding."""

from __future__ import annotations

import pytest
import torch

from agent.menu.files import load_menu
from trainer.backends import blocks, products
from trainer.backends.torch_gpt import TorchBackend
from trainer.spec import gpt

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


@pytest.mark.usefixtures("without_bf16")
def test_a_product_goes_where_it_is_asked_to() -> None:
    left, right = torch.randn(8, 4).bfloat16(), torch.randn(4, 6).bfloat16()
    out = torch.empty(10, 6, dtype=torch.bfloat16)
    products.product(left, right, out=out[1:9])
    assert torch.equal(out[1:9], products.product(left, right))


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
        model = TorchBackend().build(config, 256, torch.device("cpu"))
        tokens = torch.randint(0, 256, (2, 33))
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        return loss.item(), torch.cat(gradients)

    (native_loss, native), (loss, widened) = trained(True), trained(False)
    assert loss == pytest.approx(native_loss, rel=1e-4)
    assert (widened - native).norm() <= 0.02 * native.norm()
