"""Decide how many tokens' logits are alive at once.

The [tokens × vocabulary] logits are the part of a step's memory that grows with both. All of them
in fp32 would be 3 GiB for 16 × 1024 tokens and 50,257 words. So losses are computed in chunks of
tokens (:mod:`trainer.backends.linear_cross_entropy`), and the memory estimate reads the same rule
here. Imports no torch.
"""

from __future__ import annotations

LOGITS_AT_ONCE = 1 << 27
"""Logits alive in training: half a GiB in fp32, 2,048 tokens of 50,257 words. A smaller chunk makes
the products with the head less efficient, and adds to the head's gradient more often (four bytes
read and four written per entry, each time). The best size has not yet been measured on a GPU."""

EXACT_LOGITS_AT_ONCE = 1 << 25
"""Logits alive in evaluation, in fp64: a quarter of a GiB, and as much for their log-softmax."""


def chunk_tokens(tokens: int, vocab_size: int, logits_at_once: int = LOGITS_AT_ONCE) -> int:
    """Return the tokens of a chunk, all of ``tokens`` if their logits fit into one.

    Chunks have equal size if at most twice the needed number allows it, since a compiled loss is
    compiled once per size. Otherwise the last is smaller.
    """
    most = max(1, logits_at_once // vocab_size)
    fewest = -(-tokens // most)
    for chunks in range(fewest, 2 * fewest + 1):
        if tokens % chunks == 0:
            return tokens // chunks
    return -(-tokens // fewest)
