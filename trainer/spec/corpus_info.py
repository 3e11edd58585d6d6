"""Describe the text that is trained on and scored, in numbers."""

from __future__ import annotations

from typing import Literal

from autoresearch.values import Frozen, NonNegativeInt, PositiveInt


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
