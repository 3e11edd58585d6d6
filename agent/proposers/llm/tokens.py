"""Fit text into a number of tokens, estimated without the model's tokenizer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MESSAGE_TOKENS = 8
"""Tokens that a chat template adds to one message."""

_PIECE = re.compile(r"[A-Za-z]{1,4}|[0-9]| (?=[0-9])|\n|[^\sA-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of a section that fit, and the number of those that do not."""

    lines: tuple[str, ...]
    omitted: int


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


def fit_lines(sections: Mapping[str, Sequence[str]], room: int) -> dict[str, Section]:
    """Return every section with its lines until the first that does not fit.

    :param room: tokens left for all of them, the first sections first.
    """
    fitted = {}
    for name, lines in sections.items():
        fitting = 0
        for line in lines:
            room -= estimate_tokens(line) + 4  # its bullet and newline
            if room < 0:
                break
            fitting += 1
        fitted[name] = Section(tuple(lines[:fitting]), len(lines) - fitting)
    return fitted


def cut_to(text: str, tokens: int) -> str:
    """Return as many whole lines as fit, or else the beginning of the first."""
    kept: list[str] = []
    left = tokens
    for line in text.splitlines():
        left -= estimate_tokens(line) + 1
        if left < 0:
            break
        kept.append(line)
    # A character of four bytes is at most four tokens.
    return "\n".join(kept) if kept else text[: tokens // 4]
