"""Compute the time of one training step under a layout, part by part.

The inputs are the data sheet's peaks, and the model's products and bytes. The time is that of the
slowest pipeline stage, per micro-batch. The bubble of the pipeline is added, and the data-parallel
traffic that no micro-batch hides.

- Products: 2 FLOPs per weight and token forward, twice that backward, and the forward part once
  more if whole layers are recomputed. They run at a share of the peak that is fitted once per kind
  of GPU, and never faster than memory moves their operands.
- Attention: a fused causal kernel computes half of the square.
- Norms, residual sums, activations and the loss: the bytes that they read and write, at the speed
  of memory.
- Tensor parallel: two all-reduces (or their halves) per layer forward and two backward, each moving
  ``2 (t - 1) / t`` of the layer's output over NVLink (Shoeybi et al. 2019, arXiv 1909.08053).
- Pipeline parallel: ``(p - 1) / v`` micro-batches of idle time for p stages of v chunks (Narayanan
  et al. 2021, arXiv 2104.04473, section 2.2), and the traffic between stages.
- Data parallel: gradients are reduced and weights gathered once per step. The rings leave a node
  over as many adapters as the group has GPUs in it. The backward and forward pass of one
  micro-batch hide it.
- Optimizer: the bytes of Adam's state and of the gradients.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt
from funnel.cost.gpus import GpuNode
from funnel.plan.layout import GRADIENT_BYTES, Cluster, Layout, padded_vocab, stage_params
from funnel.targets.architecture import TargetArchitecture
from funnel.targets.ratios import GATED

Array = NDArray[np.float64]

NVLINK_SHARE = 0.8
"""Share of one direction's data-sheet bandwidth that a collective over NVLink reaches."""
FABRIC_SHARE = 0.8
"""Share of the adapters' bandwidth that a ring between nodes reaches."""
MEMORY_SHARE = 0.85
"""Share of the data sheet's memory bandwidth that a copying kernel reaches."""
ATTENTION_SHARE = 0.45
"""Assumed share of the peak that a fused causal attention reaches, backward included.

It is between the 35 % of FlashAttention-2 on an H100 and the 75 % of its successor (arXiv
2407.08608, abstract).
"""
FUSED_BACKWARD = 2.5
"""Backward products of a fused attention relative to forward: five instead of two, because it
recomputes the scores."""
TILE_DEPTH = 256
"""Overhead of a product, as an addition to its inner dimension.

A product over an inner dimension of k takes as long as one over k + 256 at the best rate. Starting
and ending a tile costs the same at any depth. The number is the same for both published tables; the
text of Megatron-LM's README names the effect.
"""
LOSS_BYTES = 48
"""Bytes per logit that an unfused fp32 cross-entropy moves, forward and backward."""
BACKWARD_BYTES = 2
"""Bytes that a backward pass moves outside products, relative to the forward pass."""
BF16 = 2


class Practice(Frozen):
    """How much of the traffic other work hides, and how a pipeline is divided.

    The default is the launch scripts' practice. Published runs may hide more.
    """

    tensor_hidden: NonNegative = 0.0
    """Share of the tensor-parallel traffic that products hide."""
    pipeline_hidden: bool = False
    chunks: PositiveInt = 1
    """Virtual stages per GPU (Narayanan et al. 2021, section 2.2.2)."""


LAUNCHED = Practice()


class StepTime(Frozen):
    """Seconds of each part of one step on the slowest GPUs."""

    products_s: Positive
    attention_s: NonNegative
    memory_s: NonNegative
    """Seconds of norms, sums, activations and the loss, which are limited by memory."""
    tensor_s: NonNegative
    """Tensor-parallel traffic that nothing hides."""
    pipeline_s: NonNegative
    """Traffic between stages that nothing hides."""
    bubble_s: NonNegative
    """Idle time while the pipeline fills and drains."""
    data_s: NonNegative
    """Data-parallel traffic that nothing hides."""
    optimizer_s: NonNegative

    @property
    def total_s(self) -> float:
        return sum(seconds for _, seconds in self.parts())

    def parts(self) -> Iterator[tuple[str, float]]:
        """Yield each part's name and seconds."""
        yield "products", self.products_s
        yield "attention", self.attention_s
        yield "norms, sums and loss", self.memory_s
        yield "tensor parallel", self.tensor_s
        yield "pipeline traffic", self.pipeline_s
        yield "pipeline bubble", self.bubble_s
        yield "data parallel, not hidden", self.data_s
        yield "optimizer", self.optimizer_s


def step_time(
    target: TargetArchitecture,
    layout: Layout,
    cluster: Cluster,
    machine: GpuNode,
    practice: Practice = LAUNCHED,
    *,
    fp8: bool = False,
) -> StepTime:
    """Compute the parts of one step.

    :param fp8: whether the blocks' products run at twice the peak of bf16.
    """
    stage_f, stage_b, head = _micro_batch(target, layout, machine, practice, fp8=fp8)
    products, attention, memory, tensor = map(float, stage_f + stage_b + head)
    usual, forward_s, backward_s = (
        float(one.sum()) for one in (stage_f + stage_b, stage_f, stage_b)
    )
    count, fabric = layout.accumulation, machine.fabric_gb_s * 1e9 * FABRIC_SHARE
    # The last stage, with the head, sets the pace; filling takes the time of the other stages.
    waits = layout.pipeline - 1
    bubble = waits / practice.chunks * (usual + float(head.sum()) / layout.pipeline)
    between = 0.0
    if layout.pipeline > 1 and not practice.pipeline_hidden:
        tokens = layout.micro_batch * target.seq_len
        moved = 2 * practice.chunks * BF16 * tokens * target.d_model
        between = moved / layout.tensor / fabric
    params = stage_params(target, layout)
    # Adam moves 30 bytes per parameter of its shard. The gradients' norm and their zeroing move
    # theirs.
    shards = layout.data if layout.distributed_optimizer else 1
    updated = 30 * params / shards + 2 * GRADIENT_BYTES * params
    return StepTime(
        products_s=count * products,
        attention_s=count * attention,
        memory_s=count * memory,
        tensor_s=count * tensor,
        pipeline_s=count * between,
        bubble_s=bubble,
        data_s=_data_parallel(layout, cluster, machine, params, forward_s, backward_s),
        optimizer_s=updated / (machine.hbm_gb_s * 1e9 * MEMORY_SHARE),
    )


def _micro_batch(
    target: TargetArchitecture, layout: Layout, machine: GpuNode, practice: Practice, *, fp8: bool
) -> tuple[Array, Array, Array]:
    """Return a stage's forward and backward pass over a micro-batch, and those of the head.

    A pass is the seconds of products, attention, memory and tensor-parallel traffic.
    """
    peak = machine.gpu.bf16_tflops * 1e12
    rate = peak * machine.product_share
    memory_rate = machine.hbm_gb_s * 1e9 * MEMORY_SHARE
    tokens, width, split = layout.micro_batch * target.seq_len, target.d_model, layout.tensor
    kv, is_gated = target.n_kv_head * target.head_dim, target.activation in GATED

    def product(inner: float, columns: float, rate: float) -> float:
        """Return the seconds of a dense product, limited by its arithmetic or by its operands."""
        moved = BF16 * (tokens * inner + inner * columns + tokens * columns)
        deep = 2 * tokens * (inner + TILE_DEPTH) * columns
        return max(deep / rate, moved / memory_rate)

    shapes: tuple[tuple[float, float], ...] = (
        (width, (width + 2 * kv) / split),
        (width / split, width),
        (width, (2 if is_gated else 1) * target.d_ff / split),
        (target.d_ff / split, width),
    )
    products = sum(product(*shape, rate * (2 if fp8 else 1)) for shape in shapes)
    square = 4.0 * tokens * target.seq_len * width / split
    attention = square / 2 / (peak * ATTENTION_SHARE)
    # Bytes of norms, sums, rotations and activations.
    rotation = 4 * (width + kv) if target.positions == "rotary" else 0
    activation = (6 if is_gated else 4) * target.d_ff
    memory = tokens * (20 * width / split + (rotation + activation) / split) / memory_rate
    link = machine.gpu.nvlink_gb_s / 2 * 1e9 * NVLINK_SHARE
    traffic = (
        (1 - practice.tensor_hidden) * (4 * (split - 1) / split * BF16 * tokens * width) / link
    )
    forward = np.array([products, attention, memory, traffic])
    backward = np.array(
        [2 * products, FUSED_BACKWARD * attention, BACKWARD_BYTES * memory, traffic]
    )
    if layout.recompute == "full":
        backward = backward + forward
    columns = padded_vocab(target, layout) / split
    loss = tokens * columns * LOSS_BYTES / memory_rate
    head = np.array([3 * product(width, columns, rate), 0.0, loss, 0.0])
    layers = target.n_layer // layout.pipeline
    return layers * forward, layers * backward, head


def _data_parallel(
    layout: Layout,
    cluster: Cluster,
    machine: GpuNode,
    params: int,
    forward_s: float,
    backward_s: float,
) -> float:
    """Return the seconds of data-parallel traffic that one micro-batch's passes do not hide."""
    data = layout.data
    inside = min(data, max(1, cluster.gpus // layout.tensor))
    link = machine.gpu.nvlink_gb_s / 2 * 1e9 * NVLINK_SHARE
    fabric = machine.fabric_gb_s * 1e9 * FABRIC_SHARE

    def ring(moved: float) -> float:
        """Return the seconds to reduce-scatter or all-gather this many bytes per GPU."""
        seconds = moved * (data - 1) / data / link if inside > 1 else 0.0
        if data > inside:
            seconds = max(seconds, moved * (data - inside) / data / (inside * fabric))
        return seconds

    if data == 1:
        return 0.0
    gradients = ring(GRADIENT_BYTES * params)
    if layout.distributed_optimizer:
        return max(0.0, gradients - backward_s) + max(0.0, ring(BF16 * params) - forward_s)
    # Without the distributed optimizer an all-reduce is twice as much.
    return max(0.0, 2 * gradients - backward_s)
