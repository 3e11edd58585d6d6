"""A text that a trial scores beside the campaign's own held-out text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from autoresearch.values import Frozen, PositiveInt

MOST_PARTS = 16
"""Parts of a text that are scored by themselves: enough for a spread among them, and few enough
for a row."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TextPart(Frozen):
    """A stretch of whole documents, the first separator included."""

    tokens: PositiveInt
    bytes: PositiveInt
    """UTF-8 bytes of its documents."""


class ScoredText(Frozen):
    """A file of tokens to score after training, in the corpus' own vocabulary and dtype."""

    name: str
    path: str
    """Absolute."""
    sha256: Sha256
    """Of the file: a trial refuses another."""
    parts: Annotated[tuple[TextPart, ...], Field(min_length=1, max_length=MOST_PARTS)]
    """In the file's order, all of it."""

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the text: the divisor of its bits per byte."""
        return sum(part.bytes for part in self.parts)

    @property
    def tokens(self) -> int:
        """In the file, separators included."""
        return sum(part.tokens for part in self.parts)
