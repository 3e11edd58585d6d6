"""How many tokens' logits are alive at once.

Of a step's memory the [tokens × vocabulary] logits are the part that grows with both; all of them
in fp32 would be 3 GiB for 16 × 1024 tokens and 50,257 words. So losses are made chunk by chunk of
tokens (:mod:`trainer.backends.linear_cross_entropy`), and the memory estimate reads the same rule
here. Imports no torch.
"""

from __future__ import annotations

LOGITS_AT_ONCE = 1 << 27
"""In training: half a GiB in fp32, 2,048 tokens of 50,257 words. A smaller chunk makes the products
with the head less efficient, and adds to the head's gradient more often (four bytes of reading and
four of writing an entry, each time). Which size is best is not yet measured on a GPU."""

EXACT_LOGITS_AT_ONCE = 1 << 25
"""In evaluation, where logits are fp64: a quarter of a GiB, and as much for their log-softmax."""


def chunk_tokens(tokens: int, vocab_size: int, logits_at_once: int = LOGITS_AT_ONCE) -> int:
    """Tokens of a chunk, all of ``tokens`` where their logits fit into one.

    Chunks are of one size where a number of at most twice as many as needed allows it: a compiled
    loss is compiled once for each size. Else the last is smaller.
    """
    most = max(1, logits_at_once // vocab_size)
    fewest = -(-tokens // most)
    for chunks in range(fewest, 2 * fewest + 1):
        if tokens % chunks == 0:
            return tokens // chunks
    return -(-tokens // fewest)
