"""Choose the flags of pretrain_gpt.py for running a job, which do not affect the training."""

from __future__ import annotations

from funnel.plan.megatron_flags import Flag
from funnel.plan.running.operations import Operations

ASYNC_FLAGS = ("--async-save", "--use-persistent-ckpt-worker")
"""Flags of an asynchronous save.

Megatron-LM ignores either without the other, and both together need another package.
"""


def operator_flags(operations: Operations) -> tuple[Flag, ...]:
    """Return the flags that save at SIGTERM, end hanging collectives, and omit an unused mask.

    TransformerEngine's attention is causal and reads no mask (``attn_mask_type`` in
    megatron/core/models/gpt/gpt_layer_specs.py, core_v0.19.0). The data loader would build a mask
    of the square of each sequence's length and move it for nothing.
    """
    return (
        Flag(name="--exit-signal-handler"),
        Flag(name="--distributed-timeout-seconds-after-init", value=str(operations.timeout_s)),
        Flag(name="--no-create-attention-mask-in-dataloader"),
    )
