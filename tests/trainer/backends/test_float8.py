"""Products in fp8 by torch's own kernel, whose CPU form has the same arithmetic."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from autoresearch.errors import SpecError
from tests.support.configs import config
from tests.support.gpts import build
from trainer.backends.products import check_fp8, float8_linear

SHAPE = {"n_layer": 2, "n_head": 2, "d_model": 32, "d_ff": 64, "seq_len": 16, "batch_size": 4}


def operands() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    x_NI = torch.randn(48, 64, generator=generator).bfloat16().requires_grad_()
    weight_OI = (0.02 * torch.randn(32, 64, generator=generator)).requires_grad_()
    return x_NI, weight_OI


def relative_error(got: Tensor, wanted: Tensor) -> float:
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()


def test_a_product_and_its_gradients_are_right_to_the_digits_that_fp8_has() -> None:
    """E4M3 has three bits of mantissa and E5M2 two, so a rounding errs by at most 3.6 and 7.2%. The
    mean error is half of that or less, and sums average many errors."""
    x_NI, weight_OI = operands()
    upstream_NO = torch.randn(48, 32, generator=torch.Generator().manual_seed(5))
    y_NO = float8_linear(x_NI, weight_OI)
    gradients = torch.autograd.grad(y_NO, (x_NI, weight_OI), upstream_NO.bfloat16())
    exact_NO = functional.linear(x_NI.double(), weight_OI.double())
    exact = torch.autograd.grad(exact_NO, (x_NI, weight_OI), upstream_NO.double())
    assert y_NO.dtype is torch.bfloat16
    assert [g.dtype for g in gradients] == [torch.bfloat16, torch.float32]
    assert 0.005 < relative_error(y_NO, exact_NO) < 0.05
    for got, wanted in zip(gradients, exact, strict=True):
        assert 0.005 < relative_error(got, wanted) < 0.08


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_magnitude_does_not_matter(scale: float) -> None:
    x_NI, weight_OI = operands()
    y_NO = float8_linear((x_NI.float() * scale).bfloat16(), weight_OI)
    torch.testing.assert_close(
        y_NO.double() / scale, float8_linear(x_NI, weight_OI).double(), rtol=0.1, atol=0.02
    )


def test_zeros_and_numbers_that_are_none_go_through() -> None:
    x_NI, weight_OI = operands()
    assert torch.equal(float8_linear(x_NI * 0, weight_OI), torch.zeros(48, 32).bfloat16())
    with torch.no_grad():
        x_NI[3, 3] = torch.nan
    assert float8_linear(x_NI, weight_OI).isnan().any(), "a diverged run must be seen as one"


@pytest.mark.slow
def test_a_model_learns_in_fp8_as_in_bf16() -> None:
    stream_BT = torch.randint(16, (4, 17), generator=torch.Generator().manual_seed(1))
    losses = {}
    for precision in ("bf16", "fp8"):
        model = build(**SHAPE, precision=precision)
        sgd = torch.optim.SGD(model.parameters(), lr=0.2)  # at 0.5 training is chaotic, in bf16 too
        for _ in range(20):
            sgd.zero_grad()
            loss = model(stream_BT[:, :-1], stream_BT[:, 1:])
            loss.backward()
            sgd.step()
        assert all(p.dtype is torch.float32 for p in model.parameters())
        losses[precision] = loss.item()
        shorter_BT = stream_BT[:1, :6]  # the held-out text's last window
        nll_BT = model.eval()(shorter_BT[:, :-1], shorter_BT[:, 1:])
        assert nll_BT.isfinite().all()
    assert losses["bf16"] < 4
    assert losses["fp8"] != losses["bf16"]
    assert losses["fp8"] == pytest.approx(losses["bf16"], rel=0.02)


@pytest.mark.parametrize(
    ("changes", "capability", "named"),
    [
        ({}, (8, 0), "8.0"),
        ({"d_ff": 40}, (8, 9), "d_ff"),
        ({"n_head": 4, "n_kv_head": 1}, (8, 9), "n_kv_head"),
    ],
)
def test_what_no_kernel_takes_is_refused(
    changes: dict[str, int], capability: tuple[int, int], named: str
) -> None:
    for fits in ((8, 9), (12, 1)):
        check_fp8(config(**SHAPE, precision="fp8"), fits)
    with pytest.raises(SpecError, match=named):
        check_fp8(config(**{**SHAPE, **changes}, precision="fp8"), capability)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpus_product_is_the_cpus() -> None:
    device = torch.device("cuda")
    check_fp8(config(**SHAPE), torch.cuda.get_device_capability(device))
    x_NI, weight_OI = operands()
    on_gpu = float8_linear(x_NI.to(device), weight_OI.to(device))
    torch.testing.assert_close(on_gpu.cpu(), float8_linear(x_NI, weight_OI), rtol=0.02, atol=0.01)
