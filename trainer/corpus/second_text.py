"""Texts to score that no trial of a search has scored: one set aside from a corpus, and others.

**Set aside** are the last documents of a corpus' train split. The held-out text is the first
documents in the order of their hashes and these are the last, so both are uniform samples of the
corpus. Nothing on disk changes by it, nor what any trial trains on or scores that does not ask for
it: a trial that is to be scored on these documents trains on the split before them
(``TrialSpec.train_tokens``). Which documents they are follows from the corpus alone, so nobody can
choose them after the fact.

**Given** is any other source. Documents that the corpus has too, token for token, are left out.

Either is cut into parts of whole documents and about equal size: the spread of a difference among
them says how far it holds for other text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoresearch.errors import CorpusError
from autoresearch.files import replace_file
from trainer.corpus.disk import writing_corpus
from trainer.corpus.prepare import default_name
from trainer.corpus.sources import SourceReader
from trainer.corpus.split import HELDOUT_AT_MOST_ONE_IN, NEEDED_BYTES, NEEDED_DOCUMENTS
from trainer.corpus.spool import Indices
from trainer.corpus.store import Corpus
from trainer.corpus.text import fingerprint
from trainer.corpus.tokenization import Tokens, check_lossless, token_dtype
from trainer.spec import MOST_PARTS, ScoredText, TextPart

TIMES_HELDOUT = 2
"""How much larger than the held-out text what is set aside is, where a tenth of the split allows
it: it is scored a few dozen times and not hundreds, and more documents say more."""
MOST_BYTES = 64 << 20
"""Of a given text: every trial of a confirmation scores all of it."""
_PIECE_TOKENS = 1 << 22
SET_ASIDE = "set aside"
"""The name of the text that comes from the corpus."""


@dataclass(frozen=True, slots=True)
class FreshText:
    """A text in a corpus' tokens."""

    name: str
    tokens: Tokens
    """Documents, a separator before each."""
    parts: tuple[TextPart, ...]
    documents: int
    train_tokens: int | None = None
    """Of the train split, those before it; None where it is not from there."""
    left_out: int = 0
    """Documents that the corpus has too."""

    def written(self, directory: Path) -> ScoredText:
        """Put its tokens into ``directory``, in a file that is named by their hash.

        :raises MachineryError: where the disk refuses.
        """
        data = np.ascontiguousarray(self.tokens).tobytes()
        sha256 = hashlib.sha256(data).hexdigest()
        path = directory / f"{sha256[:16]}.bin"
        with writing_corpus(directory):
            directory.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
                replace_file(path, data, durable=True)
        return ScoredText(
            name=self.name, path=str(path.absolute()), sha256=sha256, parts=self.parts
        )


def set_aside(corpus: Corpus) -> FreshText | None:
    """The last documents of the train split; None where a tenth of it holds too few."""
    info = corpus.info
    limit = info.train_bytes // HELDOUT_AT_MOST_ONE_IN
    target = min(TIMES_HELDOUT * info.heldout_bytes, limit)
    sizes: list[tuple[int, int]] = []
    held = 0
    tokenizer = corpus.tokenizer()
    for tokens in _from_the_end(corpus):
        size = len(tokenizer.decode(tokens[1:]))
        if held + size > limit:
            break
        sizes.append((len(tokens), size))
        held += size
        if held >= target:
            break
    if len(sizes) < NEEDED_DOCUMENTS or held < NEEDED_BYTES:
        return None
    sizes.reverse()
    cut = info.train_tokens - sum(length for length, _ in sizes)
    return FreshText(
        SET_ASIDE, np.asarray(corpus.train[cut:]), _parts(sizes), len(sizes), train_tokens=cut
    )


def given_text(source: str, corpus: Corpus) -> FreshText:
    """The text of ``source`` (:mod:`trainer.corpus.sources`), its documents in the order of their
    hashes, each once.

    :raises CorpusError: where it cannot be read, is too large, or holds nothing that is not in the
        corpus.
    """
    documents = _distinct(source)
    tokenizer = corpus.tokenizer()
    check_lossless(tokenizer, corpus.info.tokenizer, documents)
    encoded = [tokenizer.encode([document]) for document in documents]
    known = _in_corpus(encoded, corpus)
    fresh = [i for i in range(len(encoded)) if i not in known]
    if not fresh:
        raise CorpusError(
            f"every document of {source} is in the corpus {corpus.info.name} too; name a text that"
            " it does not hold"
        )
    dtype = token_dtype(corpus.info.dtype)
    return FreshText(
        name=default_name([source]),
        tokens=np.concatenate([encoded[i].astype(dtype) for i in fresh]),
        parts=_parts([(len(encoded[i]), len(documents[i])) for i in fresh]),
        documents=len(fresh),
        left_out=len(known),
    )


def _distinct(source: str) -> list[bytes]:
    by_mark: dict[bytes, bytes] = {}
    size = 0
    for document in SourceReader([source], "text").documents():
        mark = fingerprint(document)
        if mark is None:
            continue
        size += len(document)
        if size > MOST_BYTES:
            raise CorpusError(
                f"{source} holds more than {MOST_BYTES >> 20} MiB, which every trial of a"
                " confirmation would score; name a part of it"
            )
        by_mark.setdefault(mark, document)
    if not by_mark:
        raise CorpusError(f"{source} holds nothing but white space; name a file with text in it")
    return [by_mark[mark] for mark in sorted(by_mark)]


def _in_corpus(encoded: Sequence[Tokens], corpus: Corpus) -> set[int]:
    """Which of these documents the corpus has, token for token."""
    wanted: dict[int, dict[bytes, int]] = {}
    dtype = token_dtype(corpus.info.dtype)
    for i, tokens in enumerate(encoded):
        wanted.setdefault(len(tokens), {})[tokens.astype(dtype).tobytes()] = i
    found: set[int] = set()
    for stream in (corpus.train, corpus.heldout):
        starts = _document_starts(stream, corpus.info.separator_id)
        lengths = np.diff(starts, append=len(stream))
        for at in np.flatnonzero(np.isin(lengths, list(wanted))):
            start, length = int(starts[at]), int(lengths[at])
            data = np.asarray(stream[start : start + length]).tobytes()
            found.update({wanted[length][data]} if data in wanted[length] else ())
    return found


def _document_starts(stream: Tokens, separator_id: int) -> Indices:
    """Where documents begin, found piece by piece: a stream may be larger than memory."""
    pieces = range(0, len(stream), _PIECE_TOKENS)
    return np.concatenate(
        [
            start
            + np.flatnonzero(np.asarray(stream[start : start + _PIECE_TOKENS]) == separator_id)
            for start in pieces
        ]
    )


def _from_the_end(corpus: Corpus) -> Iterator[Tokens]:
    """The documents of the train split from the last on, each with its separator."""
    end = len(corpus.train)
    window = 1 << 20
    while end > 0:
        start = max(0, end - window)
        piece = np.asarray(corpus.train[start:end])
        separators = np.flatnonzero(piece == corpus.info.separator_id)
        if not len(separators):
            if start == 0:
                return
            window *= 2
            continue
        for at in separators[::-1].tolist():
            yield piece[at : end - start]
            end = start + at


def _parts(sizes: Sequence[tuple[int, int]]) -> tuple[TextPart, ...]:
    """Whole documents put together to at most MOST_PARTS parts of about equal bytes.

    :param sizes: tokens and bytes of each document.
    """
    total = sum(size for _, size in sizes)
    parts: list[TextPart] = []
    tokens = held = done = 0
    for place, (length, size) in enumerate(sizes):
        tokens, held = tokens + length, held + size
        is_last = place == len(sizes) - 1
        if is_last or (done + held) * MOST_PARTS >= (len(parts) + 1) * total:
            parts.append(TextPart(tokens=tokens, bytes=held))
            done, tokens, held = done + held, 0, 0
    return tuple(parts)
