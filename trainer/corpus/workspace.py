"""Build a corpus atomically.

It is built in a ``.building-`` folder of the cache, and renamed when complete and synced. Builders
take turns: one holds the cache's ``.lock``, which the kernel releases with the process. So a
``.building-`` folder that the next one finds is from a preparation that died, and is removed.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from autoresearch.errors import CorpusError
from autoresearch.files import sync_directory
from trainer.corpus.documents import writing_corpus
from trainer.corpus.store import (
    HELDOUT,
    META,
    TOKENIZER,
    TRAIN,
    Corpus,
    corpus_sha256,
    is_intact,
    open_corpus,
)
from trainer.corpus.tokenization import Tokens, dtype_name
from trainer.spec import CorpusInfo

BUILDING = ".building-"
LOCK = ".lock"

Batches = Iterable[tuple[Tokens, int, int]]
"""The tokens of some documents, separators included; how many documents they are; their UTF-8
bytes."""


@contextlib.contextmanager
def workspace(cache_dir: Path) -> Iterator[Path]:
    """Yield a folder of the cache to build a corpus in, once no other builder is at work.

    :raises MachineryError: if the disk refuses.
    """
    with contextlib.ExitStack() as cleanup:
        with writing_corpus(cache_dir):
            cache_dir.mkdir(parents=True, exist_ok=True)
            lock = cleanup.enter_context((cache_dir / LOCK).open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            for abandoned in cache_dir.glob(f"{BUILDING}*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            directory = Path(tempfile.mkdtemp(prefix=BUILDING, dir=cache_dir.absolute()))
            cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        yield directory


def intact_corpus(directory: Path) -> Corpus | None:
    """Return the corpus in this folder, if it exists and is intact."""
    try:
        corpus = open_corpus(directory)
        return corpus if is_intact(corpus) else None
    except CorpusError:
        return None


@dataclass(frozen=True, slots=True)
class Made:
    """Identity of a corpus that is being built."""

    name: str
    tokenizer: str
    vocab_size: int
    tokenizer_json: bytes | None = None
    documents: int | None = None
    """Documents before those of one normal form were dropped; None: none were."""


def publish(
    directory: Path, folder: str, made: Made, *, heldout: Batches, train: Batches
) -> Corpus:
    """Write the files of a corpus into the workspace, and rename it to ``folder``.

    A damaged corpus of that name is replaced.

    :raises MachineryError: if the disk refuses.
    """
    held, trained = (
        _write_tokens(directory / name, part) for name, part in ((HELDOUT, heldout), (TRAIN, train))
    )
    kept = held.documents + trained.documents
    documents = kept if made.documents is None else made.documents
    info = CorpusInfo(
        name=made.name,
        sha256=corpus_sha256(trained.sha256, held.sha256, made.tokenizer_json),
        heldout_sha256=held.sha256,
        tokenizer=made.tokenizer,
        vocab_size=made.vocab_size,
        separator_id=made.vocab_size - 1,
        dtype=dtype_name(made.vocab_size),
        documents=documents,
        duplicates=documents - kept,
        train_documents=trained.documents,
        train_tokens=trained.tokens,
        train_bytes=trained.text_bytes,
        heldout_documents=held.documents,
        heldout_tokens=held.tokens,
        heldout_bytes=held.text_bytes,
    )
    target = directory.parent / folder
    with writing_corpus(directory.parent):
        if made.tokenizer_json is not None:
            _write(directory / TOKENIZER, made.tokenizer_json)
        _write(directory / META, (info.model_dump_json(indent=2) + "\n").encode())
        shutil.rmtree(target, ignore_errors=True)
        directory.chmod(0o755)
        sync_directory(directory)
        directory.rename(target)
        sync_directory(target.parent)
    return open_corpus(target)


@dataclass(frozen=True, slots=True)
class _Written:
    """A complete token file, synced to disk."""

    sha256: str
    tokens: int
    documents: int
    text_bytes: int


def _write_tokens(path: Path, batches: Batches) -> _Written:
    sha256 = hashlib.sha256()
    tokens = documents = text_bytes = 0
    with writing_corpus(path.parent), path.open("xb") as file:
        for batch, batch_documents, batch_bytes in batches:
            data = batch.view(np.uint8).data
            file.write(data)
            sha256.update(data)
            tokens += len(batch)
            documents += batch_documents
            text_bytes += batch_bytes
        _sync(file)
    return _Written(sha256.hexdigest(), tokens, documents, text_bytes)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
