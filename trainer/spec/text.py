"""Describe a prepared corpus, and a text that a trial scores besides its held-out text."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from autoresearch.values import Frozen, NonNegativeInt, PositiveInt

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


class CorpusInfo(Frozen):
    """Facts about a prepared corpus: its ``meta.json``, and the journal's record of the
    evaluation."""

    name: str
    sha256: str
    """Hash of the train tokens, held-out tokens and tokenizer: corpora with equal hashes are
    equal."""
    heldout_sha256: str
    """Hash of the held-out token file alone: part of the evaluation protocol, checked by every
    trial."""
    tokenizer: str
    """``bytes``, ``bpe:1024`` or ``file:NAME``."""
    vocab_size: PositiveInt
    separator_id: NonNegativeInt
    """Token before each document; it represents no byte of text."""
    dtype: Literal["uint8", "uint16", "uint32"]
    documents: PositiveInt
    duplicates: NonNegativeInt
    train_documents: PositiveInt
    train_tokens: PositiveInt
    train_bytes: PositiveInt
    heldout_documents: PositiveInt
    heldout_tokens: PositiveInt
    heldout_bytes: PositiveInt
    """Exact UTF-8 bytes of the held-out text: the divisor of val_bpb."""
