"""Provide texts that no trial of a search has scored: a holdout split of the corpus, and others.

The **holdout split** is the last documents of a corpus' train split. The held-out text is the first
documents in the order of their hashes and these are the last, so both are uniform samples of the
corpus. It changes nothing on disk, and nothing that other trials train on or score. A trial that
will be scored on these documents trains on the split before them (``TrialSpec.train_tokens``). The
corpus alone determines the documents, so nobody can choose them after the fact.

A **given text** is any other source. Documents that the corpus contains too, token for token, are
omitted.

Each text is divided into parts of whole documents and similar size. The spread of a difference
among the parts shows how far it holds for other text.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoresearch.campaign_files import make_folder, read_file, replace_file
from autoresearch.errors import CorpusError
from trainer.corpus.documents import (
    HELDOUT_AT_MOST_ONE_IN,
    NEEDED_BYTES,
    NEEDED_DOCUMENTS,
    fingerprint,
    writing_corpus,
)
from trainer.corpus.prepare import default_name
from trainer.corpus.sources import SourceReader
from trainer.corpus.store import Corpus
from trainer.corpus.tokenization import Tokens, check_lossless, token_dtype
from trainer.schema import MOST_PARTS, ScoredText, TextPart

TIMES_HELDOUT = 2
"""Size of the holdout split relative to the held-out text, if a tenth of the train split allows it.
It is scored a few dozen times rather than hundreds, and more documents give more precision."""
MOST_BYTES = 64 << 20
"""Largest given text: every trial of a confirmation scores all of it."""
_PIECE_TOKENS = 1 << 22
HOLDOUT_NAME = "set aside"
"""Name of the text from the corpus, as stored in rows."""


@dataclass(frozen=True, slots=True)
class FreshText:
    """A text in a corpus' tokens."""

    name: str
    tokens: Tokens
    """Documents, each after a separator."""
    parts: tuple[TextPart, ...]
    documents: int
    train_tokens: int | None = None
    """Tokens of the train split before it; None if the text is not from the train split."""
    left_out: int = 0
    """Number of documents omitted because the corpus contains them."""

    def written(self, directory: Path) -> ScoredText:
        """Write its tokens into a folder of a campaign, in a file named by their hash.

        :raises MachineryError: if the disk refuses.
        """
        data = np.ascontiguousarray(self.tokens).tobytes()
        sha256 = hashlib.sha256(data).hexdigest()
        name = f"{sha256[:16]}.bin"
        with writing_corpus(directory):
            make_folder(directory.parent, directory.name)
            if not _holds(directory, name, data):
                replace_file(directory, name, data, durable=True)
        path = str((directory / name).absolute())
        return ScoredText(name=self.name, path=path, sha256=sha256, parts=self.parts)


def _holds(directory: Path, name: str, data: bytes) -> bool:
    with suppress(OSError):
        return read_file(directory, name, len(data)) == data
    return False


def holdout_split(corpus: Corpus) -> FreshText | None:
    """Return the last documents of the train split; None if a tenth of it holds too few."""
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
        HOLDOUT_NAME, np.asarray(corpus.train[cut:]), _parts(sizes), len(sizes), train_tokens=cut
    )


def given_text(source: str, corpus: Corpus) -> FreshText:
    """Return the text of ``source`` (:mod:`trainer.corpus.sources`), its distinct documents in the
    order of their hashes.

    :raises CorpusError: if it cannot be read, is too large, or contains only documents of the
        corpus.
    """
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
                " confirmation would score; choose a part of it"
            )
        by_mark.setdefault(mark, document)
    if not by_mark:
        raise CorpusError(f"{source} contains only white space; choose a file with text")
    documents = [by_mark[mark] for mark in sorted(by_mark)]
    tokenizer = corpus.tokenizer()
    check_lossless(tokenizer, corpus.info.tokenizer, documents)
    encoded = [tokenizer.encode([document]) for document in documents]
    known = _in_corpus(encoded, corpus)
    fresh = [i for i in range(len(encoded)) if i not in known]
    if not fresh:
        raise CorpusError(
            f"every document of {source} is in the corpus {corpus.info.name} too; choose a text"
            " that it does not hold"
        )
    dtype = token_dtype(corpus.info.dtype)
    return FreshText(
        name=default_name([source]),
        tokens=np.concatenate([encoded[i].astype(dtype) for i in fresh]),
        parts=_parts([(len(encoded[i]), len(documents[i])) for i in fresh]),
        documents=len(fresh),
        left_out=len(known),
    )


def _in_corpus(encoded: Sequence[Tokens], corpus: Corpus) -> set[int]:
    """Return the indices of these documents that the corpus contains, token for token."""
    wanted: dict[int, dict[bytes, int]] = {}
    dtype, separator_id = token_dtype(corpus.info.dtype), corpus.info.separator_id
    for i, tokens in enumerate(encoded):
        wanted.setdefault(len(tokens), {})[tokens.astype(dtype).tobytes()] = i
    found: set[int] = set()
    for stream in (corpus.train, corpus.heldout):
        starts = np.concatenate(
            [  # in pieces: a stream may be larger than memory
                begin + np.flatnonzero(stream[begin : begin + _PIECE_TOKENS] == separator_id)
                for begin in range(0, len(stream), _PIECE_TOKENS)
            ]
        )
        lengths = np.diff(starts, append=len(stream))
        for at in np.flatnonzero(np.isin(lengths, list(wanted))):
            start, length = int(starts[at]), int(lengths[at])
            data = np.asarray(stream[start : start + length]).tobytes()
            found.update({wanted[length][data]} if data in wanted[length] else ())
    return found


def _from_the_end(corpus: Corpus) -> Iterator[Tokens]:
    """Yield the documents of the train split from the last on, each with its separator."""
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
    """Group whole documents into at most MOST_PARTS parts of similar size.

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
