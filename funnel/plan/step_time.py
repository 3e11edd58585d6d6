"""Compute the time of one training step under a layout, part by part.

The inputs are the data sheet's peaks, and the model's products and bytes. The time is that of the
slowest pipeline stage, per micro-batch. The bubble of the pipeline is added, and the data-parallel
traffic that no micro-batch hides.

- Products: 2 FLOPs per weight and token forward, twice that backward, and the forward part once
  more if whole layers are recomputed. They run at a share of the peak that is fitted once per kind
  of GPU, and never faster than memory moves their operands.
- Attention: a fused causal kernel computes half of the square. Without it the whole square counts
  as products, and each score moves 13 bytes forward and twice that backward (Korthikanti et al.
  2022, arXiv 2205.05198, section 4: the bytes read and written without fusion).
- Norms, residual sums, activations and the loss: the bytes that they read and write, at the speed
  of memory.
- Tensor parallel: two all-reduces (or their halves) per layer forward and two backward, each moving
  ``2 (t - 1) / t`` of the layer's output over NVLink (Shoeybi et al. 2019, arXiv 1909.08053).
- Pipeline parallel: ``(p - 1) / v`` micro-batches of idle time for p stages of v chunks (Narayanan
  et al. 2021, arXiv 2104.04473, section 2.2), and the traffic between stages.
- Data parallel: gradients are reduced and weights gathered once per step. The rings leave a node
  over as many adapters as the group has GPUs in it. If the practice overlaps this traffic, the
  backward and forward pass of one micro-batch hide it.
- Optimizer: the bytes of Adam's state, and those of accumulating gradients over micro-batches.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt
from funnel.cost.gpus import Machine
from funnel.plan.layout import Cluster, Layout, padded_vocab, stage_params
from funnel.target.architecture import TargetArchitecture
from funnel.target.equal_size import GATED

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
SCORE_BYTES = 13
"""Bytes per score that an unfused attention moves forward."""
LOSS_BYTES = 48
"""Bytes per logit that an unfused fp32 cross-entropy moves, forward and backward."""
BACKWARD_BYTES = 2
"""Bytes that a backward pass moves outside products, relative to the forward pass."""
BF16 = 2


class Practice(Frozen):
    """Software practices that determine which work overlaps and which kernels are fused."""

    fused_attention: bool = True
    sequence_parallel: bool = True
    """Whether norms and residual sums are split over tensor-parallel GPUs too."""
    dropout: bool = False
    tensor_hidden: NonNegative = 0.0
    """Share of the tensor-parallel traffic that products hide."""
    data_hidden: bool = True
    """Whether gradients and weights travel during the backward and forward passes."""
    pipeline_hidden: bool = False
    chunks: PositiveInt = 1
    """Virtual stages per GPU (Narayanan et al. 2021, section 2.2.2)."""
    gradient_bytes: PositiveInt = 4
    gradients_fused: bool = True
    """Whether the backward products accumulate the gradients, without a separate kernel."""


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
    machine: Machine,
    practice: Practice,
    *,
    fp8: bool = False,
) -> StepTime:
    """Compute the parts of one step.

    :param fp8: whether the blocks' products run at twice the peak of bf16.
    """
    return _Work(target, layout, cluster, machine, practice, fp8=fp8).step()


class _Work:
    """The arithmetic of one layout; a pass is products, attention, memory and traffic, in s."""

    def __init__(
        self,
        target: TargetArchitecture,
        layout: Layout,
        cluster: Cluster,
        machine: Machine,
        practice: Practice,
        *,
        fp8: bool,
    ) -> None:
        self.target, self.layout, self.cluster = target, layout, cluster
        self.machine, self.practice = machine, practice
        self.tokens = layout.micro_batch * target.seq_len
        self.peak = machine.gpu.bf16_tflops * 1e12
        self.rate = self.peak * machine.product_share
        self.block_rate = self.rate * (2 if fp8 else 1)
        self.memory_rate = machine.hbm_gb_s * 1e9 * MEMORY_SHARE
        self.link = machine.gpu.nvlink_gb_s / 2 * 1e9 * NVLINK_SHARE
        moved = 4 * (layout.tensor - 1) / layout.tensor * BF16 * self.tokens * target.d_model
        self.traffic = (1 - practice.tensor_hidden) * moved / self.link
        """Seconds of a layer's tensor-parallel traffic that nothing hides, in one direction."""
        self.fabric = machine.fabric_gb_s * 1e9 * FABRIC_SHARE

    def step(self) -> StepTime:
        layout = self.layout
        layers = self.target.n_layer // layout.pipeline
        forward, backward = self.layer_forward(), self.layer_backward()
        head = self.head()
        stage_f, stage_b = layers * forward, layers * backward
        products, attention, memory, tensor = map(float, stage_f + stage_b + head)
        usual, forward_s, backward_s = (
            float(one.sum()) for one in (stage_f + stage_b, stage_f, stage_b)
        )
        count = layout.accumulation
        waits = layout.pipeline - 1
        # The last stage, with the head, sets the pace; filling takes the time of the other stages.
        bubble = waits / self.practice.chunks * (usual + float(head.sum()) / layout.pipeline)
        between = 0.0
        if layout.pipeline > 1 and not self.practice.pipeline_hidden:
            moved = 2 * self.practice.chunks * BF16 * self.tokens * self.target.d_model
            between = moved / layout.tensor / self.fabric
        params = stage_params(self.target, layout)
        return StepTime(
            products_s=count * products,
            attention_s=count * attention,
            memory_s=count * memory,
            tensor_s=count * tensor,
            pipeline_s=count * between,
            bubble_s=bubble,
            data_s=self.data_parallel(params, forward_s, backward_s),
            optimizer_s=self.optimizer(params),
        )

    def product(self, rows: int, inner: float, columns: float, rate: float) -> float:
        """Return the seconds of a dense product, limited by its arithmetic or by its operands."""
        moved = BF16 * (rows * inner + inner * columns + rows * columns)
        deep = 2 * rows * (inner + TILE_DEPTH) * columns
        return max(deep / rate, moved / self.memory_rate)

    def layer_products(self) -> float:
        target, split = self.target, self.layout.tensor
        width, kv = target.d_model, target.n_kv_head * target.head_dim
        branches = 2 if target.activation in GATED else 1
        shapes: tuple[tuple[float, float], ...] = (
            (width, (width + 2 * kv) / split),
            (width / split, width),
            (width, branches * target.d_ff / split),
            (target.d_ff / split, width),
        )
        return sum(
            self.product(self.tokens, inner, columns, self.block_rate) for inner, columns in shapes
        )

    def layer_attention(self) -> tuple[float, float, float]:
        """Return the seconds of the products forward and backward, and the bytes moved forward."""
        target, split = self.target, self.layout.tensor
        square = 4.0 * self.tokens * target.seq_len * target.d_model / split
        if self.practice.fused_attention:
            forward = square / 2 / (self.peak * ATTENTION_SHARE)
            return forward, FUSED_BACKWARD * forward, 0.0
        scores = self.tokens * target.seq_len * target.n_head / split
        return square / self.rate, 2 * square / self.rate, SCORE_BYTES * scores

    def layer_bytes(self) -> float:
        """Return the bytes that norms, sums, rotations and activations move forward."""
        target, split = self.target, self.layout.tensor
        width, kv = target.d_model, target.n_kv_head * target.head_dim
        stream: float = (20 + 2 * self.practice.dropout) * width
        if self.practice.sequence_parallel:
            stream /= split
        rotation = 4 * (width + kv) if target.positions == "rotary" else 0
        activation = (6 if target.activation in GATED else 4) * target.d_ff
        return self.tokens * (stream + (rotation + activation) / split)

    def layer_forward(self) -> Array:
        attention, _, score_bytes = self.layer_attention()
        return np.array(
            [
                self.layer_products(),
                attention + score_bytes / self.memory_rate,
                self.layer_bytes() / self.memory_rate,
                self.traffic,
            ]
        )

    def layer_backward(self) -> Array:
        _, attention, score_bytes = self.layer_attention()
        own = np.array(
            [
                2 * self.layer_products(),
                attention + BACKWARD_BYTES * score_bytes / self.memory_rate,
                BACKWARD_BYTES * self.layer_bytes() / self.memory_rate,
                self.traffic,
            ]
        )
        return own + self.layer_forward() if self.layout.recompute == "full" else own

    def head(self) -> Array:
        """Return the forward and backward pass of the head and the loss."""
        columns = padded_vocab(self.target, self.layout) / self.layout.tensor
        products = 3 * self.product(self.tokens, self.target.d_model, columns, self.rate)
        memory = self.tokens * columns * LOSS_BYTES / self.memory_rate
        return np.array([products, 0.0, memory, 0.0])

    def data_parallel(self, params: int, forward_s: float, backward_s: float) -> float:
        """Return the seconds of data-parallel traffic that one micro-batch's passes do not hide."""
        if self.layout.data == 1:
            return 0.0
        gradients = self.ring(self.practice.gradient_bytes * params)
        # Without the distributed optimizer it is the second half of an all-reduce.
        weights = self.ring(BF16 * params) if self.layout.distributed_optimizer else gradients
        if not self.practice.data_hidden:
            return gradients + weights
        if self.layout.distributed_optimizer:
            return max(0.0, gradients - backward_s) + max(0.0, weights - forward_s)
        return max(0.0, gradients + weights - backward_s)

    def ring(self, moved: float) -> float:
        """Return the seconds to reduce-scatter or all-gather this many bytes per GPU."""
        data = self.layout.data
        inside = min(data, max(1, self.cluster.gpus // self.layout.tensor))
        seconds = moved * (data - 1) / data / self.link if inside > 1 else 0.0
        if data > inside:
            seconds = max(seconds, moved * (data - inside) / data / (inside * self.fabric))
        return seconds

    def optimizer(self, params: int) -> float:
        """Return the seconds of Adam's update and of handling the gradients.

        Adam moves 30 bytes per parameter of its shard. The gradients' norm, their zeroing and, if
        not fused, their accumulation move further bytes.
        """
        shards = self.layout.data if self.layout.distributed_optimizer else 1
        size = self.practice.gradient_bytes
        moved = 30 * params / shards + 2 * size * params
        if not self.practice.gradients_fused:
            moved += 3 * size * params * self.layout.accumulation
        return moved / self.memory_rate
