"""The two runs that a forecast goes between: the proxy's long run and the target's."""

from __future__ import annotations

from trainer.spec import Frozen, NonNegativeInt, Positive, PositiveInt


class Text(Frozen):
    """What a token is, on one side of the comparison."""

    tokenizer: str
    vocab_size: PositiveInt
    bytes_per_token: Positive | None
    """Of UTF-8, mean; None where nobody said."""


class Sides(Frozen):
    """The two runs that a forecast goes between, and what parts them."""

    target: str
    corpus: str
    proxy_text: Text
    target_text: Text
    proxy_params: PositiveInt
    """Without embeddings."""
    target_params: PositiveInt
    proxy_tokens_per_step: PositiveInt
    tokens_per_step: PositiveInt
    seq_len: PositiveInt
    warmup_steps: NonNegativeInt
    """The target's."""
    first_day_tokens: PositiveInt
    total_tokens: PositiveInt
    """The target's whole budget: no forecast goes past it."""
