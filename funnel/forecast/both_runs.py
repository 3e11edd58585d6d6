"""Describe the two runs that a forecast connects: the proxy's long run and the target's run."""

from __future__ import annotations

from autoresearch.values import Frozen, NonNegativeInt, Positive, PositiveInt


class Text(Frozen):
    """Definition of a token in one of the two runs."""

    tokenizer: str
    vocab_size: PositiveInt
    bytes_per_token: Positive | None
    """Mean UTF-8 bytes per token; None if unknown."""


class BothRuns(Frozen):
    """The two runs and their differences, as a forecast records them."""

    target: str
    corpus: str
    """Corpus that the proxies were trained on."""
    proxy_text: Text
    target_text: Text
    proxy_params: PositiveInt
    """The proxy's parameters, without embeddings."""
    target_params: PositiveInt
    proxy_tokens_per_step: PositiveInt
    tokens_per_step: PositiveInt
    """The target's tokens per step."""
    seq_len: PositiveInt
    """The target's sequence length; it converts a log's samples into tokens."""
    first_day_tokens: PositiveInt
    """Tokens in 24 hours at the planned utilization, even if the run is shorter."""


class PlannedRuns(BothRuns):
    """The two runs with the parts of the target's schedule that a forecast depends on."""

    warmup_steps: NonNegativeInt
    """The target's warm-up steps."""
    total_tokens: PositiveInt
    """The target's token budget; no forecast extends past it."""
