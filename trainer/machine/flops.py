"""The arithmetic of one training step, counted as the literature counts it.

Per token, forward and backward (Chowdhery et al. 2022, "PaLM", arXiv 2204.02311, appendix B):

    6 N + 12 L D T

N is the number of weights that a matrix product reads: all of the blocks' matrices, and the head's
V × D whether it is tied or not. Neither the embedding, a lookup, nor the norms' gains count. The
attention's two products over whole T × T squares are 12 L D T. A causal kernel computes half of
them; the literature counts the whole, and so does :attr:`TrainingFlops.per_token`, so that its
utilisations can be compared with published ones. :attr:`TrainingFlops.causal_per_token` counts
half. Recomputed activations are not counted in either.
"""

from __future__ import annotations

from typing import Protocol

from autoresearch.values import Frozen, Positive
from trainer.schema import GATED_ACTIVATIONS

FORMULA = "6 N + 12 L D T per token (PaLM appendix B; N with the head, without the embedding)"


class DecoderShape(Protocol):
    """Dimensions that determine the arithmetic of a decoder-only transformer; a Config has them."""

    @property
    def n_layer(self) -> int:
        """Number of blocks."""

    @property
    def n_head(self) -> int:
        """Heads of queries."""

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""

    @property
    def d_ff(self) -> int:
        """Hidden width of the feed-forward block."""

    @property
    def activation(self) -> str:
        """Function of the feed-forward block, which may gate it."""

    @property
    def norm_place(self) -> str:
        """Place of the norms in a block."""

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys are normed."""


class TrainingFlops(Frozen):
    """Floating-point operations to train on one token; an addition and a product are two."""

    products: Positive
    """``6 N`` for the weights: 2 N forward and 4 N backward."""
    attention: Positive
    """``12 L D T`` for queries with keys and for weights with values, over whole squares."""

    @property
    def per_token(self) -> float:
        """FLOPs per token as published utilizations count them."""
        return self.products + self.attention

    @property
    def causal_per_token(self) -> float:
        """FLOPs per token with the half of the attention that a causal mask leaves."""
        return self.products + self.attention / 2

    @classmethod
    def of(cls, shape: DecoderShape, *, vocab_size: int, seq_len: int) -> TrainingFlops:
        """Return the FLOPs of this shape on sequences of ``seq_len``."""
        return cls(
            products=6 * product_weights(shape, vocab_size),
            attention=12 * shape.n_layer * shape.d_model * seq_len,
        )


def product_weights(shape: DecoderShape, vocab_size: int) -> int:
    """Return N: the weights that the matrix products read, the head's included."""
    return shape.n_layer * block_weights(shape) + vocab_size * shape.d_model


def block_gains(shape: DecoderShape) -> int:
    """Return the number of gains in the norms of one block."""
    norms = 4 if shape.norm_place == "sandwich" else 2
    of_heads = 2 * (shape.d_model // shape.n_head) if shape.qk_norm else 0
    return norms * shape.d_model + of_heads


def block_weights(shape: DecoderShape) -> int:
    """Return the number of weights in the matrices of one block."""
    # Queries and the output are D × D; keys and values share one head among several of queries.
    keys_width = shape.d_model * shape.kv_heads // shape.n_head
    feed_forward = (3 if shape.activation in GATED_ACTIVATIONS else 2) * shape.d_ff
    return shape.d_model * (2 * shape.d_model + 2 * keys_width + feed_forward)
