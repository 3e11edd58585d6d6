"""Our own kernels, for operations that take torch several passes over a GPU's memory.

A step of the 354 M shape at 16 × 1024 tokens spends a quarter of its time between the products:
residual additions, norms, activations, the loss, casts. Here each of them is one kernel, which
reads its inputs once and writes its outputs once:

    operations      the operations in torch's operators, and the choice by a tensor's device
    triton_*        CUDA: Triton kernels, compiled at the first call for their dtypes. The only
                    shapes they are compiled for are the powers of two above a norm's width and half
                    a head's, so most configs of other shapes find them compiled

Without Triton or its C compiler, a CUDA machine runs the model as a CPU does, on torch's operators
alone (:func:`usable_on`). It then moves about twice the bytes.

Reasons against existing kernels:

- Liger-Kernel's fused linear cross-entropy reads the number of counted targets from the device at
  each call, so the host waits for the step. It does not accept logits of padded rows. It derives
  its chunks from the ratio of vocabulary to width (32 of 512 tokens at this shape, each of which
  adds to the head's gradient).
- Cut-cross-entropy computes the logits a second and a third time in Triton's products, and by
  default drops small gradients.
- torch's own ``linear_cross_entropy`` appeared in 2.13 and makes about five passes over a chunk.
- quack needs CuTe DSL and does not list sm_121.
- None of these norms and rotates queries and keys in one kernel. Liger-Kernel takes three each way:
  two norms and a rotation, which alone takes 0.059 ms for 2,048 tokens of 40 heads of 256 on an
  A100 (its benchmark/data, 2024-09-03), 1.4 TB/s. vLLM's ``fused_qk_norm_rope`` has no gradient.
- The norms and activations of all of these keep tensors that are recomputed here.
"""

import torch

from trainer.machine.host import lacking


def usable_on(device: torch.device) -> bool:
    """Return whether models on ``device`` run on these kernels: on CUDA, if Triton can compile
    them."""
    return device.type == "cuda" and lacking() is None


NORM_EPS = 1e-5
"""The term that a norm adds to the mean square before it takes the root."""
ADAM_EPS = 1e-8
ROW_MULTIPLE = 64
"""Rows of logits are padded to a multiple of this: 128 bytes in bf16, a cache line. Tensor cores'
loads need 16 bytes."""


def padded(vocab_size: int) -> int:
    """Return the columns of a row of logits: the vocabulary and its padding."""
    return -(-vocab_size // ROW_MULTIPLE) * ROW_MULTIPLE
