"""Constants that a kernel's two forms share."""

NORM_EPS = 1e-5
"""Added to the mean square that a norm divides by the root of."""
ADAM_EPS = 1e-8
FLOAT8_SMALLEST = 1e-30
"""A tensor of zeros has no magnitude to scale by."""
ROW_MULTIPLE = 64
"""Rows of logits are padded to a multiple of this: 128 bytes in bf16, a cache line, where
tensor cores' loads want 16."""


def padded(vocab_size: int) -> int:
    """Columns of a row of logits: the vocabulary and what is left empty behind it."""
    return -(-vocab_size // ROW_MULTIPLE) * ROW_MULTIPLE
