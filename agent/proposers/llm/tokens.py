"""How many tokens a prompt is, without any model's tokenizer at hand."""

from __future__ import annotations

import re

TURN_TOKENS = 8
"""What a chat template wraps around one message."""

_PIECE = re.compile(r"[A-Za-z]{1,4}|[0-9]| (?=[0-9])|\n|[^\sA-Za-z0-9]")


def estimate_tokens(text: str) -> int:
    """An estimate that errs upwards.

    Byte-level BPE vocabularies hold most English words whole, and many split numbers into digits
    (SmolLM2, Llama 2, Mistral; Llama 3 keeps three together). Here a token is four letters, one
    digit, one mark, one newline, or one byte of anything outside ASCII, of which no byte-level
    tokenizer can make more. Tables of numbers, which a rule of so many characters a token counts
    far too low, are what history is made of.
    """
    outside_ascii = 0 if text.isascii() else len(text.encode("utf-8", "replace")) - len(text)
    return len(_PIECE.findall(text)) + outside_ascii
