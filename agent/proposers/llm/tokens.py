"""Estimate the number of tokens of a prompt without the model's tokenizer."""

from __future__ import annotations

import re

MESSAGE_TOKENS = 8
"""Tokens that a chat template adds to one message."""

_PIECE = re.compile(r"[A-Za-z]{1,4}|[0-9]| (?=[0-9])|\n|[^\sA-Za-z0-9]")


def estimate_tokens(text: str) -> int:
    """Return an estimate that errs upwards.

    Byte-level BPE vocabularies hold most English words whole, and many split numbers into digits
    (SmolLM2, Llama 2, Mistral; Llama 3 keeps three together). Here a token is four letters, one
    digit, one mark, one newline, or one byte outside ASCII, the most that a byte-level tokenizer
    can make of them. A fixed number of characters per token would badly underestimate tables of
    numbers, which make up the history.
    """
    outside_ascii = 0 if text.isascii() else len(text.encode("utf-8", "replace")) - len(text)
    return len(_PIECE.findall(text)) + outside_ascii
