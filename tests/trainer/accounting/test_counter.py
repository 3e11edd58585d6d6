"""Test that counted FLOPs, bytes and kernels agree with counts by hand, on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from autoresearch.errors import SpecError
from tests.support.configs import config
from trainer.accounting.counter import Counter
from trainer.accounting.declared import Cost, counting, declared
from trainer.accounting.work import DEVICES, DeviceDescription, Shape, StepCounts, Work, describe
from trainer.backends.torch_gpt import TorchGPT
from trainer.envelope.counted_step import META, count_step
from trainer.envelope.prediction import Prediction


def counted(step: Callable[[], object]) -> StepCounts:
    counter = Counter()
    with counter.watching(), counter.phase("forward"):
        step()
    return counter.counts()


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=META)


@pytest.mark.parametrize(
    ("step", "moved", "kernels"),
    [
        (lambda x: x + x, 3 * 2048, 1),
        (lambda x: x.add_(1), 2 * 2048, 1),
        (lambda x: x.float(), 2048 + 4096, 1),
        (lambda x: x.t()[:5].unsqueeze(0), 0, 0),
        (torch.empty_like, 0, 0),
        (torch.zeros_like, 2048, 1),
        (lambda x: x[:1].expand(32, 32) + x, 64 + 2 * 2048, 1),
        (lambda x: torch.empty_like(x).copy_(x), 2 * 2048, 1),
        (lambda x: x.sum(), 2048 + 2, 1),
        (lambda x: torch.mm(x, x, out=torch.empty_like(x)), 3 * 2048, 1),
        (lambda x: functional.embedding(meta(3, dtype=torch.int64), x), 24 + 2 * 192, 1),
    ],
)
def test_every_tensor_is_read_once_and_written_once(
    step: Callable[[Tensor], object], moved: int, kernels: int
) -> None:
    counts = counted(lambda: step(meta(32, 32)))
    assert (counts.moved_bytes, counts.kernels) == (moved, kernels)


def test_the_peak_is_what_tensors_hold_at_once_in_blocks_of_512_bytes() -> None:
    def step() -> None:
        x = meta(256, dtype=torch.float32)  # 1024
        y = x + 1  # 2048
        del x
        y.mul_(2)
        z = y.sum()  # 512 more
        del y, z

    counter = Counter()
    with counter.watching():
        kept = meta(100, dtype=torch.float32)  # 400, rounded up
        with counter.phase("forward"):
            step()
        with counter.phase("backward"):
            step()
    counts = counter.counts()
    assert kept.numel() == 100
    assert counts.held_bytes == 512
    assert counts.peak_bytes == {"forward": 512 + 2048, "backward": 512 + 2048}


def test_what_a_backward_pass_keeps_is_held_until_it_has_run() -> None:
    weight = meta(64, 64, dtype=torch.float32).requires_grad_()
    counter = Counter()
    with counter.watching():
        x = meta(64, 64, dtype=torch.float32)
        with counter.phase("forward"):
            loss = functional.gelu(x @ weight).sum()
        with counter.phase("backward"):
            loss.backward()
    counts = counter.counts()
    matrix = 64 * 64 * 4
    assert counts.peak_bytes["forward"] == matrix + 2 * matrix + 512, "x; product, gelu; the sum"
    # GELU's output is freed, x and the product remain; gradients of both and of the weight.
    assert matrix * 3 < counts.peak_bytes["backward"] <= matrix * 4 + 2 * 512


@pytest.mark.parametrize(
    ("width", "misaligned"), [(50257, True), (50304, False), (8, False), (4, True)]
)
def test_a_product_is_aligned_where_its_rows_start_at_multiples_of_16_bytes(
    width: int, misaligned: bool
) -> None:
    counts = counted(lambda: meta(32, 64) @ meta(width, 64).t())
    (work,) = counts.calls
    assert bool(work.misaligned) is misaligned
    if misaligned:
        assert work.misaligned == (f"result of rows of {2 * width} bytes",)


def test_a_view_into_the_middle_of_a_row_is_not_aligned() -> None:
    counts = counted(lambda: meta(32, 64)[:, 4:36] @ meta(32, 32))
    assert counts.misaligned


def test_attention_is_counted_as_a_gpu_does_it_and_causal() -> None:
    def step() -> None:
        q = meta(2, 4, 128, 64)
        functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    counts = counted(step)
    assert counts.flops_of("attention") == 2 * 2 * 4 * 128 * 128 * 64, "half of two products"
    assert counts.kernels == 1, "and not the operators of the one that is written out"


def test_the_products_flops_are_those_that_torch_counts_when_it_runs() -> None:
    """The reference is torch's own counter, on the step as a CPU runs it, without our kernels."""
    shape, vocab_size = config(n_layer=2, precision="fp32", batch_size=2), 320
    counts = count_step(shape, vocab_size)
    model = TorchGPT(shape, vocab_size, torch.device("cpu"))
    model.init()
    model.train()
    tokens = torch.zeros((2, shape.seq_len), dtype=torch.int64)
    with FlopCounterMode(display=False) as torchs:
        model(tokens, tokens).backward()
    of_mm = torchs.get_flop_counts()["Global"][torch.ops.aten.mm]
    assert counts.flops_of("block") + counts.flops_of("head") == of_mm
    assert counts.flops_of("head") == 6 * vocab_size * shape.d_model * shape.tokens_per_step


# --- declared kernels ---------------------------------------------------------------------------

launched: list[str] = []


@declared(outputs=torch.empty_like)
def twice(x: Tensor) -> Tensor:
    launched.append("twice")
    return 2 * x


@declared(outputs=lambda x: x, cost=lambda x: Cost(1, 2, kernels=3, flops=4, kind="head"))
def costly_(x: Tensor) -> Tensor:
    return x


def test_a_declared_kernel_runs_where_nothing_is_counted() -> None:
    launched.clear()
    assert not counting()
    assert twice(torch.ones(3)).tolist() == [2, 2, 2]
    assert launched == ["twice"]


def test_a_declared_kernel_is_counted_and_not_run() -> None:
    launched.clear()

    def step() -> None:
        assert counting()
        y = twice(meta(32, 32))
        costly_(y)

    counts = counted(step)
    assert not launched
    by_name = {work.operator: work for work in counts.calls}
    assert by_name["twice"].read_bytes == by_name["twice"].written_bytes == 2048
    assert by_name["twice"].kernels == 1
    assert by_name["costly_"].moved_bytes == 3
    assert counts.kernels == 4
    assert counts.flops_of("head") == counts.flops == 4
    assert counts.peak == 2 * 2048


ROUND = DeviceDescription(
    name="round",
    bf16_tflops=100,
    fp8_tflops=200,
    fp32_tflops=10,
    attention_tflops=50,
    bandwidth_gb_per_s=1000,
    ceiling_tflops=125,
    memory_gib=10,
    misaligned_slowdown=3,
    launch_us=5,
    source="made up",
)


def work(**changes: Any) -> Work:
    fields: dict[str, Any] = {
        "phase": "forward",
        "operator": "mm",
        "kind": "block",
        "read_bytes": 0,
        "written_bytes": 0,
        "kernels": 1,
        "dtype": "bfloat16",
    }
    return Work(**{**fields, **changes})


@pytest.mark.parametrize(
    ("one", "milliseconds"),
    [
        (work(flops=10**12), 10),
        (work(flops=10**12, dtype="float8_e4m3fn"), 5),
        (work(flops=10**12, dtype="float32"), 100),
        (work(flops=10**12, kind="attention"), 20),
        (work(flops=10**12, misaligned=("left of rows of 6 bytes",)), 30),
        (work(flops=10**12, read_bytes=15 * 10**9, written_bytes=5 * 10**9), 20),
        (work(kind="other", read_bytes=1000, kernels=4), 0.02),
    ],
)
def test_a_kernel_takes_the_longest_of_computing_moving_and_launching(
    one: Work, milliseconds: float
) -> None:
    counts = StepCounts({one: 3}, {"forward": 1}, 1)
    assert 1e3 * ROUND.seconds(counts) == pytest.approx(3 * milliseconds)


def test_a_prediction_is_of_all_kernels_one_after_the_other() -> None:
    product = work(flops=10**12, shape=Shape(1, 2, 3), misaligned=("left of rows of 6 bytes",))
    cast = work(kind="other", operator="_to_copy", read_bytes=10**9)
    counts = StepCounts({product: 2, cast: 1}, {"forward": 11 << 30, "update": 1}, 1)
    row = Prediction.of(counts, config(), 257, ROUND)
    assert row.step_ms == pytest.approx(61)
    assert row.tokens_per_s == pytest.approx(1024 / 0.061)
    assert (row.moved_gb, row.elementwise_gb, row.kernels) == (1, 1, 3)
    assert (row.peak_gib, row.fits) == (11, False)
    assert row.misaligned == ("2 × mm [1, 2] × [2, 3]: left of rows of 6 bytes",)


def test_rates_are_changed_by_name_and_said_to_be() -> None:
    changed = describe("GB10, bf16_tflops=80, bandwidth_gb_per_s=210")
    assert (changed.bf16_tflops, changed.bandwidth_gb_per_s) == (80, 210)
    assert changed.fp8_tflops == DEVICES["gb10"].fp8_tflops
    assert changed.source.endswith("changed: bf16_tflops 80, bandwidth_gb_per_s 210")


@pytest.mark.parametrize(
    "text",
    ["h300", "h100,tflops=3", "h100,bf16_tflops", "h100,bf16_tflops=-1", "h100,name=mine"],
)
def test_a_device_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        describe(text)
