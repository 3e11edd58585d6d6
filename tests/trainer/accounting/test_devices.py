"""Step times follow from rates by hand, and impossible device descriptions are refused."""

from __future__ import annotations

from typing import Any

import pytest

from autoresearch.errors import SpecError
from tests.support.configs import config
from trainer.accounting.work import DEVICES, DeviceDescription, Shape, StepCounts, Work, describe
from trainer.envelope.prediction import Prediction

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
