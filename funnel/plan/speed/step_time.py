"""How long one training step takes under a layout, part by part.

From a data sheet's peaks and the bytes and products of the model, for the slowest pipeline stage
and one micro-batch at a time; then the pipeline is filled, and what of the data-parallel traffic
does not hide behind the last micro-batch is added.

- Products: 2 FLOPs a weight and token forward, twice that backward, once more where whole layers
  are recomputed, at a share of the peak that is fitted once for each kind of GPU; never faster than
  memory moves their operands.
- Attention: half of its square where a fused causal kernel does it; else the whole square as
  products, and 13 bytes a score moved forward and twice that backward (Korthikanti et al. 2022,
  arXiv 2205.05198, section 4: what is written and read when nothing is fused).
- Norms, residual sums, activations, the loss: the bytes they read and write, at the memory's speed.
- Tensor parallel: two all-reduces (or their halves) a layer forward and two backward, each moving
  ``2 (t - 1) / t`` of the layer's output over NVLink (Shoeybi et al. 2019, arXiv 1909.08053).
- Pipeline parallel: ``(p - 1) / v`` micro-batches of waiting for p stages of v chunks (Narayanan et
  al. 2021, arXiv 2104.04473, section 2.2), and what crosses nodes between stages.
- Data parallel: gradients reduced and weights gathered once a step, in rings that leave a node over
  as many adapters as the group has GPUs in it; hidden behind the backward and forward pass of one
  micro-batch where the practice overlaps them.
- Optimizer: the bytes of Adam's state, and of gradients added to micro-batch by micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt
from funnel.plan.layout import Cluster, Layout, padded_vocab, stage_params
from funnel.plan.speed.machines import Machine
from funnel.target.architecture import TargetArchitecture

NVLINK_SHARE = 0.8
"""Share of one direction's data-sheet bandwidth that a collective over NVLink reaches."""
FABRIC_SHARE = 0.8
"""Share of the adapters' bandwidth that a ring between nodes reaches."""
MEMORY_SHARE = 0.85
"""Share of the data sheet's memory bandwidth that a copying kernel reaches."""
ATTENTION_SHARE = 0.45
"""Share of the peak that a fused causal attention is assumed to reach, backward included:
between the 35 % of FlashAttention-2 on an H100 and the 75 % of its successor (arXiv 2407.08608,
abstract)."""
FUSED_BACKWARD = 2.5
"""Five products for two: a fused attention computes its scores again."""
TILE_DEPTH = 256
"""A product over an inner dimension of k takes as long as k + 256 would at its best rate: starting
and ending a tile costs the same however deep it is. One number for both published tables; the
README's text names the effect."""
SCORE_BYTES = 13
"""An unfused attention's bytes a score, forward."""
LOSS_BYTES = 48
"""Bytes a logit that an unfused cross-entropy moves, forward and backward, in fp32."""
BACKWARD_BYTES = 2
"""Bytes that a backward pass moves between products, relative to the forward pass."""
BF16 = 2
GATED = ("swiglu", "geglu")


class Practice(Frozen):
    """Software practices that overlap or add to the products."""

    fused_attention: bool = True
    sequence_parallel: bool = True
    """Norms and residual sums are split over tensor-parallel GPUs too."""
    dropout: bool = False
    tensor_hidden: NonNegative = 0.0
    """The share of tensor-parallel traffic that goes on behind products."""
    data_hidden: bool = True
    """Gradients and weights travel during the backward and forward passes."""
    pipeline_hidden: bool = False
    chunks: PositiveInt = 1
    """Virtual stages a GPU (Narayanan et al. 2021, section 2.2.2)."""
    gradient_bytes: PositiveInt = 4
    gradients_fused: bool = True
    """The backward products add to the gradients themselves; no kernel of its own does."""


class StepTime(Frozen):
    """Seconds of one step, of the GPUs that take longest."""

    products_s: Positive
    attention_s: NonNegative
    memory_s: NonNegative
    """Norms, sums, activations, the loss: kernels that move bytes."""
    tensor_s: NonNegative
    """Tensor-parallel traffic that nothing hides."""
    pipeline_s: NonNegative
    """Traffic between stages that nothing hides."""
    bubble_s: NonNegative
    """Waiting for the pipeline to fill and to drain, and for its slowest stage."""
    data_s: NonNegative
    """Data-parallel traffic that nothing hides."""
    optimizer_s: NonNegative

    @property
    def total_s(self) -> float:
        return sum(seconds for _, seconds in self.parts())

    def parts(self) -> Iterator[tuple[str, float]]:
        """Each part's name and seconds."""
        yield "products", self.products_s
        yield "attention", self.attention_s
        yield "norms, sums and loss", self.memory_s
        yield "tensor parallel", self.tensor_s
        yield "pipeline traffic", self.pipeline_s
        yield "pipeline bubble", self.bubble_s
        yield "data parallel, not hidden", self.data_s
        yield "optimizer", self.optimizer_s


class _Pass(Frozen):
    """One pass of a micro-batch over some layers, in seconds."""

    products: float = 0.0
    attention: float = 0.0
    memory: float = 0.0
    tensor: float = 0.0

    @property
    def total(self) -> float:
        return self.products + self.attention + self.memory + self.tensor

    def plus(self, other: _Pass, times: float = 1.0) -> _Pass:
        return _Pass(
            products=self.products + times * other.products,
            attention=self.attention + times * other.attention,
            memory=self.memory + times * other.memory,
            tensor=self.tensor + times * other.tensor,
        )


def step_time(
    target: TargetArchitecture,
    layout: Layout,
    cluster: Cluster,
    machine: Machine,
    practice: Practice,
    *,
    fp8: bool = False,
) -> StepTime:
    """The parts of one step.

    :param fp8: the blocks' products at twice the peak of bf16.
    """
    work = _Work(target, layout, cluster, machine, practice, fp8=fp8)
    return work.step()


class _Work:
    """The arithmetic of one layout."""

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
        self.fabric = machine.fabric_gb_s * 1e9 * FABRIC_SHARE

    def step(self) -> StepTime:
        layout = self.layout
        layers = self.target.n_layer // layout.pipeline
        forward, backward = self.layer_forward(), self.layer_backward()
        head = self.head()
        stage_f = _Pass().plus(forward, layers)
        stage_b = _Pass().plus(backward, layers)
        usual = stage_f.total + stage_b.total
        micro = stage_f.plus(stage_b).plus(head)
        count = layout.accumulation
        waits = layout.pipeline - 1
        # The last stage, with the head, sets the pace; filling waits for the others.
        bubble = waits / self.practice.chunks * (usual + head.total / layout.pipeline)
        params = stage_params(self.target, layout)
        return StepTime(
            products_s=count * micro.products,
            attention_s=count * micro.attention,
            memory_s=count * micro.memory,
            tensor_s=count * micro.tensor,
            pipeline_s=count * self.between_stages(),
            bubble_s=bubble,
            data_s=self.data_parallel(params, stage_f.total, stage_b.total),
            optimizer_s=self.optimizer(params),
        )

    def product(self, rows: int, inner: float, columns: float, rate: float) -> float:
        """Seconds of one dense product: its arithmetic or its operands, whichever takes longer."""
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
        """Seconds of the products forward and backward, and bytes moved forward."""
        target, split = self.target, self.layout.tensor
        square = 4.0 * self.tokens * target.seq_len * target.d_model / split
        if self.practice.fused_attention:
            forward = square / 2 / (self.peak * ATTENTION_SHARE)
            return forward, FUSED_BACKWARD * forward, 0.0
        scores = self.tokens * target.seq_len * target.n_head / split
        return square / self.rate, 2 * square / self.rate, SCORE_BYTES * scores

    def layer_bytes(self) -> float:
        """Bytes that norms, sums, rotations and activations move forward."""
        target, split = self.target, self.layout.tensor
        width, kv = target.d_model, target.n_kv_head * target.head_dim
        stream: float = (20 + 2 * self.practice.dropout) * width
        if self.practice.sequence_parallel:
            stream /= split
        rotation = 4 * (width + kv) if target.positions == "rotary" else 0
        activation = (6 if target.activation in GATED else 4) * target.d_ff
        return self.tokens * (stream + (rotation + activation) / split)

    def layer_forward(self) -> _Pass:
        attention, _, score_bytes = self.layer_attention()
        return _Pass(
            products=self.layer_products(),
            attention=attention + score_bytes / self.memory_rate,
            memory=self.layer_bytes() / self.memory_rate,
            tensor=self.layer_traffic(),
        )

    def layer_backward(self) -> _Pass:
        _, attention, score_bytes = self.layer_attention()
        own = _Pass(
            products=2 * self.layer_products(),
            attention=attention + BACKWARD_BYTES * score_bytes / self.memory_rate,
            memory=BACKWARD_BYTES * self.layer_bytes() / self.memory_rate,
            tensor=self.layer_traffic(),
        )
        return own.plus(self.layer_forward()) if self.layout.recompute == "full" else own

    def layer_traffic(self) -> float:
        split = self.layout.tensor
        moved = 2 * 2 * (split - 1) / split * BF16 * self.tokens * self.target.d_model
        return (1 - self.practice.tensor_hidden) * moved / self.link

    def head(self) -> _Pass:
        """Forward and backward, with the loss."""
        split = self.layout.tensor
        columns = padded_vocab(self.target, self.layout) / split
        return _Pass(
            products=3 * self.product(self.tokens, self.target.d_model, columns, self.rate),
            memory=self.tokens * columns * LOSS_BYTES / self.memory_rate,
        )

    def between_stages(self) -> float:
        if self.layout.pipeline == 1 or self.practice.pipeline_hidden:
            return 0.0
        moved = 2 * self.practice.chunks * BF16 * self.tokens * self.target.d_model
        return moved / self.layout.tensor / self.fabric

    def data_parallel(self, params: int, forward_s: float, backward_s: float) -> float:
        """Return the traffic that the backward and forward pass of one micro-batch do not hide."""
        if self.layout.data == 1:
            return 0.0
        gradients = self.ring(self.practice.gradient_bytes * params)
        weights = (
            self.ring(BF16 * params)
            if self.layout.distributed_optimizer
            else gradients  # the second half of an all-reduce
        )
        if not self.practice.data_hidden:
            return gradients + weights
        if self.layout.distributed_optimizer:
            return max(0.0, gradients - backward_s) + max(0.0, weights - forward_s)
        return max(0.0, gradients + weights - backward_s)

    def ring(self, moved: float) -> float:
        """Seconds to reduce-scatter or all-gather so many bytes a GPU."""
        data = self.layout.data
        inside = min(data, max(1, self.cluster.gpus // self.layout.tensor))
        seconds = moved * (data - 1) / data / self.link if inside > 1 else 0.0
        if data > inside:
            seconds = max(seconds, moved * (data - inside) / data / (inside * self.fabric))
        return seconds

    def optimizer(self, params: int) -> float:
        """Adam's 30 bytes a parameter of its share; the norm, the zeroing and the adding up."""
        shards = self.layout.data if self.layout.distributed_optimizer else 1
        size = self.practice.gradient_bytes
        moved = 30 * params / shards + 2 * size * params
        if not self.practice.gradients_fused:
            moved += 3 * size * params * self.layout.accumulation
        return moved / self.memory_rate
