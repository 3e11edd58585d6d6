"""Define a text that a trial scores besides the campaign's own held-out text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from autoresearch.values import Frozen, PositiveInt

MOST_PARTS = 16
"""Most separately scored parts of a text: enough for a spread, few enough for a row."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TextPart(Frozen):
    """A run of whole documents, the first separator included."""

    tokens: PositiveInt
    bytes: PositiveInt
    """UTF-8 bytes of its documents."""


class ScoredText(Frozen):
    """A file of tokens to score after training, in the corpus' own vocabulary and dtype."""

    name: str
    path: str
    """Absolute path."""
    sha256: Sha256
    """Hash of the file; a trial refuses any other."""
    parts: Annotated[tuple[TextPart, ...], Field(min_length=1, max_length=MOST_PARTS)]
    """Parts that make up the whole file, in order."""

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the text: the divisor of its bits per byte."""
        return sum(part.bytes for part in self.parts)

    @property
    def tokens(self) -> int:
        """Tokens in the file, separators included."""
        return sum(part.tokens for part in self.parts)
