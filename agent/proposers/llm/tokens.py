"""Fit text into a number of tokens, estimated without the model's tokenizer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.proposers.llm.completions import Message

MESSAGE_TOKENS = 8
"""Tokens that a chat template adds to one message."""

THINKING_TOKENS = 16_384
"""Most tokens of a reply with thoughts, if the context allows; other replies get four times the
usual."""
REPLY_SHARE = 1 / 8
"""Share of the server's context that is reserved for a reply."""

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


@dataclass(slots=True)
class ReplyRoom:
    """Decides how many tokens a reply may have."""

    usual: int
    """Longest reply to ask for at first."""
    context: int | None = None
    """Most tokens of a question and its reply together, if known."""

    def left(self, messages: Sequence[Message]) -> int | None:
        """Return the tokens that the context leaves for the reply; None if unknown."""
        if self.context is None:
            return None
        asked = sum(estimate_tokens(message.content) + MESSAGE_TOKENS for message in messages)
        return max(1, int(self.context * REPLY_SHARE), self.context - asked)

    def most(self, messages: Sequence[Message], raised: int | None) -> int:
        """Return the most tokens that the reply may have.

        :param raised: what :meth:`raised` gave before, if it did.
        """
        left = self.left(messages)
        if raised is not None:
            return min(raised, left or raised)
        share = None if self.context is None else max(1, int(self.context * REPLY_SHARE))
        return min(self.usual, share or self.usual)

    def raised(
        self, messages: Sequence[Message], raised: int | None, *, thinks: bool
    ) -> int | None:
        """Return the most tokens of the next reply after one that was cut; None if it may not be
        longer."""
        most, left = self.most(messages, raised), self.left(messages)
        limit = THINKING_TOKENS if thinks else 4 * self.usual
        limit = min(limit, left or limit)
        return None if most >= limit else min(2 * most, limit)
