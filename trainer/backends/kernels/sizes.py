"""Constants that the Triton kernels and their torch versions share."""

NORM_EPS = 1e-5
"""The term that a norm adds to the mean square before it takes the root."""
ADAM_EPS = 1e-8
FLOAT8_SMALLEST = 1e-30
"""Lower bound of a tensor's largest magnitude, so that a tensor of zeros can be scaled."""
ROW_MULTIPLE = 64
"""Rows of logits are padded to a multiple of this: 128 bytes in bf16, a cache line. Tensor cores'
loads need 16 bytes."""


def padded(vocab_size: int) -> int:
    """Return the columns of a row of logits: the vocabulary and its padding."""
    return -(-vocab_size // ROW_MULTIPLE) * ROW_MULTIPLE
