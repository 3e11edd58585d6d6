"""The two runs that a forecast goes between: the proxy's long run and the target's."""

from __future__ import annotations

from autoresearch.values import Frozen, NonNegativeInt, Positive, PositiveInt


class Text(Frozen):
    """Definition of a token, on one side of the comparison."""

    tokenizer: str
    vocab_size: PositiveInt
    bytes_per_token: Positive | None
    """Mean bytes of UTF-8 in a token; None where nobody said."""


class BothRuns(Frozen):
    """The two runs, and what parts them; what a forecast says of itself."""

    target: str
    corpus: str
    """Corpus that the proxies were trained on."""
    proxy_text: Text
    target_text: Text
    proxy_params: PositiveInt
    """Without embeddings."""
    target_params: PositiveInt
    proxy_tokens_per_step: PositiveInt
    tokens_per_step: PositiveInt
    """The target's."""
    seq_len: PositiveInt
    """The target's: turns a log's samples into tokens."""
    first_day_tokens: PositiveInt
    """Tokens of 24 hours at the stated utilization, however short the run is."""


class PlannedRuns(BothRuns):
    """With what of the target's schedule shapes a forecast, and is in the plan's recipe."""

    warmup_steps: NonNegativeInt
    """The target's."""
    total_tokens: PositiveInt
    """The target's whole budget: no forecast goes past it."""
