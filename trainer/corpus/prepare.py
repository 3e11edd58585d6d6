"""Prepare a corpus: read, de-duplicate, split, tokenize, publish; or draw random tokens.

A corpus depends only on the *set* of its documents and on the settings: neither the order of the
sources nor names nor times change a byte of its token files.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import models, pre_tokenizers

from autoresearch.errors import CorpusError
from trainer.corpus.documents import NEEDED_BYTES, Indices, Spool, split
from trainer.corpus.sources import READ_SUFFIXES, SourceReader
from trainer.corpus.store import Corpus, intact_corpus, publish, workspace
from trainer.corpus.tokenization import (
    BPE_SAMPLE_BYTES,
    TokenizerRecipe,
    Tokens,
    check_lossless,
    dtype_name,
    parse_tokenizer,
    token_dtype,
    vocab_size,
)

FORMAT = 1
"""Part of the cache key: raise it whenever equal inputs would give other files."""
BATCH_BYTES = 1 << 20
_CORPUS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")

Stage = Literal["read", "train tokenizer", "encode"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a preparation."""

    stage: Stage
    done_bytes: int
    """Bytes of the sources while reading, of distinct text while encoding."""
    total_bytes: int | None
    """None if a streamed dataset does not report its size."""
    documents: int
    """Documents read so far, duplicates included, blank ones excluded."""
    blank_documents: int
    skipped_files: int
    """Files in folders that were skipped because their suffix is not a text suffix."""


OnProgress = Callable[[Progress], None]


def prepare(
    sources: Sequence[str],
    *,
    cache_dir: Path,
    tokenizer: str = "bytes",
    heldout_bytes: int = 262_144,
    name: str | None = None,
    text_field: str = "text",
    on_progress: OnProgress | None = None,
) -> Corpus:
    """Return the corpus of these sources, built under ``cache_dir`` or found there.

    The sources are always read and hashed to find a cached corpus; everything else is skipped if
    there is one. Sources are described in :mod:`trainer.corpus.sources`, tokenizers in
    :mod:`trainer.corpus.tokenization`, the split in :mod:`trainer.corpus.documents`.

    :param heldout_bytes: approximate size of the held-out text, at most a tenth of all text.
    :param name: name of the corpus; by default made from the sources' names.
    :param text_field: the field of JSONL, Parquet and dataset records that holds the text.
    :param on_progress: called from time to time, at least at the start and end of a stage.
    :raises CorpusError: if the input cannot become a corpus; nothing is left behind.
    :raises MachineryError: if the cache cannot be written.
    """
    if heldout_bytes < NEEDED_BYTES:
        fix = f"use {NEEDED_BYTES:,} or more"
        raise CorpusError(f"{heldout_bytes} held-out bytes are too few to measure anything; {fix}")
    recipe = parse_tokenizer(tokenizer)
    reader = SourceReader(sources, text_field)
    name = name if name is not None else default_name(sources)
    if not _CORPUS_NAME.fullmatch(name):
        raise CorpusError(
            f"a corpus cannot be named {name!r}; use up to 64 letters, digits and . _ + -"
        )
    with workspace(cache_dir) as directory, Spool(directory) as spool:

        def report(stage: Stage, done_bytes: int, total_bytes: int | None) -> None:
            counts = (len(spool), spool.blank_documents, reader.skipped_files)
            if on_progress is not None:
                on_progress(Progress(stage, done_bytes, total_bytes, *counts))

        _read(reader, spool, report)
        heldout, train = split(spool, heldout_bytes)
        settings = f"{FORMAT} {recipe.identity} {recipe.label} {heldout_bytes} {len(spool)} "
        digests = spool.exact_digests(heldout) + spool.exact_digests(train)
        key = hashlib.sha256(settings.encode() + digests)
        folder = f"{name}-{key.hexdigest()[:12]}"
        return intact_corpus(directory.parent / folder) or _build(
            directory, folder, spool, heldout, train, recipe, name=name, report=report
        )


def default_name(sources: Sequence[str]) -> str:
    """Return a name made from the sources: ``stdlib``, a path's last part, a dataset's name."""
    names = []
    for source in sources:
        if source.startswith("hf:"):
            tail = source[3:].partition(":")[0]
        else:
            path = Path(source).expanduser().absolute()
            tail = path.stem if path.suffix.lower() in READ_SUFFIXES else path.name
        names.append(re.sub(r"[^A-Za-z0-9._]+", "-", tail).strip("-._") or "text")
    return "+".join(names)[:64]


Report: TypeAlias = Callable[[Stage, int, int | None], None]
"""Reports a stage, its bytes done and its bytes in all."""


def _read(reader: SourceReader, spool: Spool, report: Report) -> None:
    total = reader.total_bytes
    report("read", 0, total)
    reported = 0
    for document in reader.documents():
        spool.add(document)
        if reader.read_bytes - reported >= BATCH_BYTES:
            reported = reader.read_bytes
            report("read", reported, total)
    spool.seal()
    report("read", reader.read_bytes, total)
    if not len(spool):
        raise CorpusError("the sources contain only white space; choose files with text")


def _build(
    directory: Path,
    folder: str,
    spool: Spool,
    heldout: Indices,
    train: Indices,
    recipe: TokenizerRecipe,
    *,
    name: str,
    report: Report,
) -> Corpus:
    report("train tokenizer", 0, None)
    sizes = spool.sizes()
    is_sampled = np.cumsum(sizes[train]) - sizes[train] < BPE_SAMPLE_BYTES
    tokenizer = recipe.build(spool.read(train[is_sampled].tolist()))
    check_lossless(tokenizer, recipe.label, spool.read(heldout.tolist()))

    total = int(sizes[heldout].sum() + sizes[train].sum())
    done = 0

    def encoded(indices: Indices) -> Iterator[tuple[Tokens, int, int]]:
        nonlocal done
        for batch in _batches(spool.read(indices.tolist())):
            text_bytes = sum(map(len, batch))
            yield tokenizer.encode(batch), len(batch), text_bytes
            done += text_bytes
            report("encode", done, total)

    report("encode", 0, total)
    return publish(
        directory,
        folder,
        name=name,
        tokenizer=(recipe.label, vocab_size(tokenizer), tokenizer.json),
        heldout=encoded(heldout),
        train=encoded(train),
        documents=len(spool),
    )


def _batches(documents: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# --- random tokens, to measure speed and size with -----------------------------------------------

TRAIN_TOKENS = 1 << 18
HELDOUT_TOKENS = 256
"""Scoring them costs one short pass, whose memory is below that of any training step."""


def vocabulary_of(tokenizer: str) -> int:
    """Return the number of ids of the tokenizer ``bytes``, ``bpe:VOCAB`` or ``file:PATH``, with the
    separator.

    Nothing is trained, so for a BPE it is the requested number.

    :raises CorpusError: if there is no such tokenizer.
    """
    recipe = parse_tokenizer(tokenizer)
    if tokenizer.startswith("bpe:"):
        return int(tokenizer.removeprefix("bpe:"))
    return vocab_size(recipe.build(()))


def random_corpus(cache_dir: Path, *, vocab_size: int, longest_seq_len: int) -> Corpus:
    """Return a prepared corpus in ``cache_dir`` of ids drawn uniformly from all but the separator.

    It is like any other corpus, its text the ids in decimal, and made once per vocabulary and
    length.

    :raises MachineryError: if it cannot be written.
    """
    train_tokens = max(TRAIN_TOKENS, 4 * longest_seq_len)
    name = f"random-{vocab_size}-{train_tokens}"
    with workspace(cache_dir) as directory:
        corpus = intact_corpus(directory.parent / name)
        if corpus is not None:
            return corpus
        ids = {str(number): number for number in range(vocab_size - 1)}
        tokenizer = HfTokenizer(models.WordLevel(ids, unk_token="0"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return publish(
            directory,
            name,
            name=name,
            tokenizer=(f"random:{vocab_size}", vocab_size, tokenizer.to_str().encode()),
            heldout=[_document(vocab_size, HELDOUT_TOKENS, seed=1)],
            train=[_document(vocab_size, train_tokens, seed=0)],
        )


def _document(vocab_size: int, count: int, *, seed: int) -> tuple[Tokens, int, int]:
    separator_id = vocab_size - 1
    ids = np.random.default_rng(seed).integers(0, separator_id, size=count - 1)
    tokens = np.concatenate(([separator_id], ids)).astype(token_dtype(dtype_name(vocab_size)))
    text_bytes = len(" ".join(map(str, ids.tolist())))
    return tokens, 1, text_bytes
