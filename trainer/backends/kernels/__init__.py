"""Kernels of our own, for what torch's operators spread over several passes of a GPU's memory.

A step of the 354 M shape at 16 × 1024 tokens spends a quarter of its time between the products:
residual additions, norms, activations, the loss, casts. Each of them is here one kernel that reads
what it needs once and writes what it makes once:

    operations      the operations, and which form of each a tensor's device takes
    triton_*        CUDA: Triton kernels, compiled at the first call for the dtypes they meet and,
                    of shapes, for the power of two above a norm's width alone, so that a config of
                    another shape finds them compiled
    written_out     the same in torch's operators: what each computes, for a CPU and for tests

Where Triton or its C compiler is missing on a CUDA machine the model runs as on a CPU, on torch's
operators alone (:func:`usable_on`); it then moves about twice the bytes.

Why our own: Liger-Kernel's fused linear cross-entropy asks the device for the number of targets
that count, at each call, and so makes the host wait for the step; it cannot be given logits of
padded rows, and takes its chunks from the ratio of vocabulary to width (32 of 512 tokens at this
shape, each of which adds to the head's gradient). Cut-cross-entropy makes the logits a second and a
third time in Triton's products, and by default leaves out small gradients. torch's own
``linear_cross_entropy`` came with 2.13 and makes about five passes over a chunk. quack wants CuTe
DSL and names no sm_121. Their norms and activations keep what is recomputed here.
"""

from __future__ import annotations

import torch

from trainer.backends.compilation import missing_for


def usable_on(device: torch.device) -> bool:
    """Whether models on ``device`` run on these kernels: on CUDA where Triton can compile them, and
    on the meta device, which stands for such a GPU where a step is counted and not run."""
    if device.type == "cuda":
        return missing_for(device) is None
    return device.type == "meta"
