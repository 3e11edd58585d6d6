"""List the GPUs that can be rented, from their data sheets."""

from __future__ import annotations

from collections.abc import Mapping

from agent.settings.rates import Rates
from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, Positive
from autoresearch.words import did_you_mean


class Gpu(Frozen):
    """One GPU of an NVLink node."""

    name: str
    memory_gb: Positive
    """Memory in units of 10^9 bytes, as the data sheet counts."""
    bf16_tflops: Positive
    """Peak TFLOP/s of dense bf16 matrix products. Data sheets also give twice that for 2:4
    sparsity, which pretraining does not use."""
    nvlink_gb_s: Positive
    """NVLink bandwidth in GB/s, both directions together."""
    source: str


GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            name="h100",
            memory_gb=80,
            bf16_tflops=989.4,
            nvlink_gb_s=900,
            source="NVIDIA H100 Tensor Core GPU data sheet, SXM",
        ),
        Gpu(
            name="h200",
            memory_gb=141,
            bf16_tflops=989.4,
            nvlink_gb_s=900,
            source="NVIDIA H200 Tensor Core GPU data sheet, SXM",
        ),
        Gpu(
            name="b200",
            memory_gb=180,
            bf16_tflops=2250,
            nvlink_gb_s=1800,
            source="NVIDIA DGX B200 data sheet, an eighth of the system",
        ),
    )
}


def find_gpu(name: str) -> Gpu:
    """Return the GPU of this name.

    :raises HandoffError: if there is none.
    """
    gpu = GPUS.get(name.lower())
    if gpu is None:
        raise HandoffError(
            f"no data sheet is known for the GPU {name!r}{did_you_mean(name.lower(), GPUS)}"
        )
    return gpu


def hourly_usd(gpu: Gpu, rates: Rates) -> float:
    """Return the price of one GPU per hour."""
    usd: float = getattr(rates, f"{gpu.name}_hourly_usd")
    return usd
