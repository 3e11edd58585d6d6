"""Compute the memory that one GPU needs under each layout of the model, and choose a layout.

A layout is tensor parallel × pipeline parallel × data parallel, with sequence parallelism whenever
tensor parallelism is used. If every GPU has room for the whole state of its optimizer, the data
parallelism is plain DDP. Otherwise the state is sharded over the data-parallel GPUs (Megatron-LM's
distributed optimizer, Rajbhandari et al. 2020, ZeRO stage 1).

Bytes per parameter, as Megatron-LM counts them: weights 2 (bf16), gradients 4 (fp32), and 12 for
the fp32 master copy and Adam's two moments, divided by DP if the optimizer is distributed. fp8 adds
2 for every weight of a block's matrix: TransformerEngine keeps an fp8 copy and its transpose.

Activations follow Korthikanti et al. 2022 (arXiv 2205.05198, table 2, "tensor + sequence parallel,
selective recomputation"), split into terms to cover grouped queries, SwiGLU and training without
dropout. Bytes per token and layer, with h = d_model, f = d_ff, k = KV heads × head_dim:

    attention      input of the norm 2h, of the projections 2h, q 2h, k and v 4k, output 2h
    feed-forward   input of the norm 2h, of the first product 2h, then
                   GELU 4f (before and after), SwiGLU 6f (both branches, and their product)

With GELU, f = 4h and k = h the sum is 32h: the paper's 34h minus the two dropout masks. Attention
scores are never kept. That is the paper's selective recomputation, and a fused attention kernel
does the same. All terms are divided by TP. Full recomputation keeps 2h per layer, and one layer's
activations while it is recomputed.

The first pipeline stage holds as many micro-batches as there are stages (one forward, one backward:
section 4.2.3 of the paper). The last stage also holds the logits: 8 bytes per token and vocabulary
entry (bf16, fp32 and a bf16 gradient), divided by TP.
"""

from typing import Literal, TypeAlias

from autoresearch.values import Finite, Frozen, Positive, PositiveInt
from funnel.cost.gpus import Gpu
from funnel.targets.architecture import TargetArchitecture
from trainer.machine.flops import block_weights

Recompute: TypeAlias = Literal["selective", "full"]

WEIGHT_BYTES = 2
GRADIENT_BYTES = 4
OPTIMIZER_BYTES = 12
FP8_BYTES = 2
LOGIT_BYTES = 8
USABLE = 0.90
"""Share of the data sheet's memory that training may use; the rest is for the CUDA context, NCCL's
buffers and fragmentation."""
VOCAB_MULTIPLE = 128
"""Megatron-LM pads the vocabulary to a multiple of this × TP."""
MICRO_BATCHES = (8, 4, 2, 1)
MAX_TENSOR_PARALLEL = 8
GB = 1e9


class Cluster(Frozen):
    """The rented GPUs."""

    nodes: PositiveInt
    gpus: PositiveInt
    """GPUs per node."""
    gpu: Gpu

    @property
    def world_size(self) -> int:
        return self.nodes * self.gpus


class Layout(Frozen):
    """How a model is distributed over GPUs."""

    tensor: PositiveInt
    pipeline: PositiveInt
    data: PositiveInt
    micro_batch: PositiveInt
    """Sequences per micro-batch."""
    global_batch: PositiveInt
    """Sequences per step, over all GPUs."""
    recompute: Recompute = "selective"
    distributed_optimizer: bool = True

    @property
    def accumulation(self) -> int:
        """Micro-batches per step of each model replica."""
        return self.global_batch // (self.data * self.micro_batch)

    @property
    def bubble(self) -> float:
        """Share of a step for which a pipeline stage is idle.

        It is ``(p - 1) / (m + p - 1)`` for p stages and m micro-batches (Narayanan et al. 2021,
        arXiv 2104.04473, section 2.2).
        """
        waits = self.pipeline - 1
        return waits / (self.accumulation + waits)

    @property
    def is_starved(self) -> bool:
        """Whether there are fewer micro-batches than pipeline stages.

        The stages are then never all busy, and are idle for half of a step or more.
        """
        return self.accumulation < self.pipeline

    @property
    def is_sharded(self) -> bool:
        """Whether the optimizer's state is sharded over several GPUs."""
        return self.distributed_optimizer and self.data > 1

    def __str__(self) -> str:
        return f"TP {self.tensor} × PP {self.pipeline} × DP {self.data}"


class MemoryUse(Frozen):
    """Memory of the fullest GPU under a layout, in 10^9 bytes."""

    layout: Layout
    weights_gb: Finite
    gradients_gb: Finite
    optimizer_gb: Finite
    activations_gb: Finite
    logits_gb: Finite
    limit_gb: Finite
    """Usable memory of the GPU."""
    measured: Positive = 1.0
    """Ratio of the memory that the preflight measured for one layout to the computed memory."""

    @property
    def total_gb(self) -> float:
        parts = (
            self.weights_gb,
            self.gradients_gb,
            self.optimizer_gb,
            self.activations_gb,
            self.logits_gb,
        )
        return self.measured * sum(parts)

    @property
    def fits(self) -> bool:
        return self.total_gb <= self.limit_gb

    @property
    def is_usable(self) -> bool:
        """Whether the layout fits and its pipeline, if any, is not starved."""
        return self.fits and not self.layout.is_starved


def memory_use(target: TargetArchitecture, layout: Layout, gpu: Gpu, *, fp8: bool) -> MemoryUse:
    """Return the memory of a GPU in the fullest pipeline stage, the first or the last."""
    stages = [
        _stage(target, layout, gpu, fp8=fp8, first=True, last=layout.pipeline == 1),
        _stage(target, layout, gpu, fp8=fp8, first=layout.pipeline == 1, last=True),
    ]
    return max(stages, key=lambda use: use.total_gb)


def _stage(
    target: TargetArchitecture, layout: Layout, gpu: Gpu, *, fp8: bool, first: bool, last: bool
) -> MemoryUse:
    layers = target.n_layer // layout.pipeline
    matrices = layers * block_weights(target) // layout.tensor
    tables = _table_params(target, layout, first=first, last=last)
    gains = (2 * layers + last) * target.d_model
    params = matrices + tables + gains
    shards = layout.data if layout.distributed_optimizer else 1
    tokens = layout.micro_batch * target.seq_len
    in_flight = min(layout.pipeline, layout.accumulation) if first else 1
    layer_bytes = layer_activation_bytes(target) / layout.tensor
    token_bytes = layer_bytes * layers * in_flight
    if layout.recompute == "full":
        token_bytes = 2 * target.d_model / layout.tensor * layers * in_flight + layer_bytes
    return MemoryUse(
        layout=layout,
        weights_gb=(WEIGHT_BYTES * params + FP8_BYTES * fp8 * matrices) / GB,
        gradients_gb=GRADIENT_BYTES * params / GB,
        optimizer_gb=OPTIMIZER_BYTES * params / shards / GB,
        activations_gb=tokens * token_bytes / GB,
        logits_gb=(
            tokens * LOGIT_BYTES * padded_vocab(target, layout) / layout.tensor / GB if last else 0
        ),
        limit_gb=USABLE * gpu.memory_gb,
    )


def stage_params(target: TargetArchitecture, layout: Layout) -> int:
    """Return the parameters on a GPU of the first pipeline stage, which has the embedding."""
    layers = target.n_layer // layout.pipeline
    matrices = layers * block_weights(target) // layout.tensor
    tables = _table_params(target, layout, first=True, last=layout.pipeline == 1)
    return matrices + tables + (2 * layers + 1) * target.d_model


def padded_vocab(target: TargetArchitecture, layout: Layout) -> int:
    """Return the size of the vocabulary as Megatron-LM pads it for this layout."""
    multiple = VOCAB_MULTIPLE * layout.tensor
    return -(-target.vocab_size // multiple) * multiple


def _table_params(target: TargetArchitecture, layout: Layout, *, first: bool, last: bool) -> int:
    table = padded_vocab(target, layout) // layout.tensor * target.d_model
    # A tied head shares the embedding's matrix on a single stage; the last of several has a copy.
    tables = (first or last) if target.tie_embeddings else first + last
    positions = target.seq_len * target.d_model if target.positions == "learned" and first else 0
    return tables * table + positions


def layer_activation_bytes(target: TargetArchitecture) -> int:
    """Return the bytes that one layer keeps for the backward pass of one token, with TP 1."""
    kv = target.n_kv_head * target.head_dim
    attention = 8 * target.d_model + 4 * kv
    feed_forward = 4 * target.d_model + (6 if target.activation == "swiglu" else 4) * target.d_ff
    return attention + feed_forward


def layouts(
    target: TargetArchitecture, cluster: Cluster, batch: int, *, fp8: bool, measured: float = 1.0
) -> list[MemoryUse]:
    """Return every TP × PP × DP that divides heads, layers and GPUs, least model parallelism first.

    Layouts with selective recomputation precede those with full recomputation. Each has the largest
    micro-batch that fits, or a micro-batch of 1 if it is not usable.

    :param batch: wanted sequences per step; a layout takes the nearest multiple of its DP.
    :param measured: ratio of measured to computed memory.
    """
    # Tensor parallelism stays within a node.
    splits = [
        (tensor, pipeline)
        for tensor in range(1, min(MAX_TENSOR_PARALLEL, cluster.gpus) + 1)
        for pipeline in range(1, min(target.n_layer, cluster.world_size) + 1)
        if cluster.gpus % tensor == 0
        and target.n_head % tensor == 0
        and target.n_kv_head % tensor == 0
        and target.d_ff % tensor == 0
        and target.n_layer % pipeline == 0
        and cluster.world_size % (tensor * pipeline) == 0
    ]
    # Of equal products, the larger TP comes first.
    splits.sort(key=lambda pair: (pair[0] * pair[1], pair[1]))
    return [
        _roomiest(target, cluster, batch, tensor, pipeline, recompute, fp8=fp8, measured=measured)
        for recompute in ("selective", "full")
        for tensor, pipeline in splits
    ]


def _roomiest(
    target: TargetArchitecture,
    cluster: Cluster,
    batch: int,
    tensor: int,
    pipeline: int,
    recompute: Recompute,
    *,
    fp8: bool,
    measured: float,
) -> MemoryUse:
    """Return the memory of one TP × PP, unsharded if usable with any micro-batch, else sharded."""
    data = cluster.world_size // (tensor * pipeline)
    global_batch = data * max(1, round(batch / data))
    uses = [
        memory_use(
            target,
            Layout(
                tensor=tensor,
                pipeline=pipeline,
                data=data,
                micro_batch=micro_batch,
                global_batch=global_batch,
                recompute=recompute,
                distributed_optimizer=sharded,
            ),
            cluster.gpu,
            fp8=fp8,
        ).model_copy(update={"measured": measured})
        for sharded in ((False, True) if data > 1 else (False,))
        for micro_batch in MICRO_BATCHES
        if global_batch % (data * micro_batch) == 0
    ]
    return next((use for use in uses if use.is_usable), uses[-1])
