"""Describe the GPUs that can be rented, their nodes and their links.

Peaks are from data sheets. The reachable share of a peak is one number per generation of GPUs. No
data sheet states it, so it is fitted to published training runs.
"""

from collections.abc import Mapping

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, Positive
from autoresearch.words import did_you_mean
from funnel.cost.rates import Rates


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


def hourly_usd(gpu: Gpu, rates: Rates, *, firm: bool = False) -> float:
    """Return the price of one GPU per hour, spot or firm."""
    usd: float = getattr(rates, f"{gpu.name}_{'firm_' * firm}hourly_usd")
    return usd


class GpuNode(Frozen):
    """A GPU in its node, with the figures that a step's time depends on."""

    gpu: Gpu
    hbm_gb_s: Positive
    """Bandwidth of its memory, in 10^9 bytes per second."""
    fabric_gb_s: Positive
    """One-way bandwidth of its network adapter, in 10^9 bytes per second."""
    product_share: Positive
    """Share of the peak that large dense products reach within a training step."""
    fitted_to: str
    """Runs that :attr:`product_share` was fitted to."""
    source: str


GB10 = Gpu(
    name="gb10",
    memory_gb=128,
    bf16_tflops=125,
    nvlink_gb_s=50,
    source="NVIDIA DGX Spark data sheet: an eighth of its sparse fp4 rate; its link of 200 Gb/s",
)
"""The GPU of an owned unit; it is not offered for rent."""

_H100_TABLE = "the weak-scaling table of Megatron-LM's README, H100"

MACHINES: Mapping[str, GpuNode] = {
    machine.gpu.name: machine
    for machine in (
        GpuNode(
            gpu=GPUS["h100"],
            hbm_gb_s=3350,
            fabric_gb_s=50,
            product_share=0.55,
            fitted_to=_H100_TABLE,
            source="H100 data sheet; DGX H100: eight NDR adapters of 400 Gb/s for eight GPUs",
        ),
        GpuNode(
            gpu=GPUS["h200"],
            hbm_gb_s=4800,
            fabric_gb_s=50,
            product_share=0.55,
            fitted_to=f"{_H100_TABLE}: the same chip with more memory",
            source="H200 data sheet; DGX H200: eight NDR adapters of 400 Gb/s for eight GPUs",
        ),
        GpuNode(
            gpu=GPUS["b200"],
            hbm_gb_s=8000,
            fabric_gb_s=50,
            product_share=0.46,
            fitted_to="one run of NVIDIA's Megatron-Bridge summary: 8 B in fp8 on eight B200",
            source="DGX B200 data sheet, an eighth of the system; eight adapters of 400 Gb/s",
        ),
    )
}
