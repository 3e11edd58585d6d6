"""Flags of pretrain_gpt.py that are about keeping a run going, and not about what it trains."""

from __future__ import annotations

from funnel.plan.megatron_flags import Flag
from funnel.plan.running.operations import Operations

ASYNC_FLAGS = ("--async-save", "--use-persistent-ckpt-worker")
"""One without the other Megatron-LM switches off again; and both want a package of their own."""


def operator_flags(operations: Operations) -> tuple[Flag, ...]:
    """A checkpoint at SIGTERM, an end to collectives that hang, and no mask that nothing reads.

    Attention is causal for TransformerEngine, which reads no mask then (``attn_mask_type`` in
    megatron/core/models/gpt/gpt_layer_specs.py, core_v0.19.0): what the data loader made of the
    documents would be a square of every sequence, moved and thrown away.
    """
    return (
        Flag(name="--exit-signal-handler"),
        Flag(name="--distributed-timeout-seconds-after-init", value=str(operations.timeout_s)),
        Flag(name="--no-create-attention-mask-in-dataloader"),
    )
