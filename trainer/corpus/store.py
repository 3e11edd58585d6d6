"""Build, open and find prepared corpora on disk.

CACHE/
  NAME-KEY/                 KEY is a hash of the text and the settings
    meta.json               CorpusInfo
    train.bin heldout.bin   little-endian tokens, a separator before each document
    tokenizer.json          except for bytes
  .building-…/              being built, and renamed when complete and synced
  .lock                     held by the one builder at work

The kernel releases the lock with its process. So a ``.building-`` folder that the next builder
finds is from a preparation that died, and is removed.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from pydantic import ValidationError

from autoresearch.errors import CorpusError
from autoresearch.files import replace_file, sync_directory
from autoresearch.values import explain
from trainer.corpus.documents import writing_corpus
from trainer.corpus.tokenization import (
    ByteTokenizer,
    JsonTokenizer,
    Tokenizer,
    Tokens,
    dtype_name,
    token_dtype,
)
from trainer.schema import CorpusInfo

META = "meta.json"
TRAIN = "train.bin"
HELDOUT = "heldout.bin"
TOKENIZER = "tokenizer.json"

BUILDING = ".building-"
LOCK = ".lock"

Batches = Iterable[tuple[Tokens, int, int]]
"""The tokens of some documents, separators included; how many documents they are; their UTF-8
bytes."""

_Tokens: TypeAlias = "np.memmap[tuple[int], np.dtype[Any]]"


@dataclass(frozen=True, slots=True)
class Corpus:
    """A prepared corpus with memory-mapped, read-only tokens.

    ``train`` and ``heldout`` are 1-D. Each document in them follows ``info.separator_id``, in the
    order of the content hashes.
    """

    info: CorpusInfo
    train: _Tokens
    heldout: _Tokens
    directory: Path

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer it was made with."""
        if self.info.tokenizer == "bytes":
            return ByteTokenizer()
        return JsonTokenizer((self.directory / TOKENIZER).read_bytes())


def open_corpus(directory: Path, *, heldout: bool = True) -> Corpus:
    """Open a prepared corpus and check its files' sizes, without hashing.

    :param heldout: False leaves out the held-out tokens, for a process that may not read them.
    :raises CorpusError: if the folder is missing, incomplete or does not match its meta.json.
    """
    try:
        info = CorpusInfo.model_validate_json((directory / META).read_bytes())
    except ValidationError as error:
        raise CorpusError(
            f"{directory / META} does not describe a corpus: {explain(error)}; prepare it again"
        ) from error
    except OSError as error:
        raise CorpusError(
            f"{directory} is not a prepared corpus ({META}: {error.strerror}); "
            "make one with: autoresearch data prepare"
        ) from error
    if info.tokenizer != "bytes" and not (directory / TOKENIZER).is_file():
        raise CorpusError(f"{directory} lacks its {TOKENIZER}; prepare it again")
    train = _map_tokens(directory / TRAIN, info.dtype, info.train_tokens)
    return Corpus(
        info=info,
        train=train,
        heldout=_map_tokens(directory / HELDOUT, info.dtype, info.heldout_tokens)
        if heldout
        else cast(_Tokens, train[:0]),
        directory=directory.absolute(),
    )


def _map_tokens(path: Path, dtype: str, tokens: int) -> _Tokens:
    token = token_dtype(dtype)
    expected = tokens * token.itemsize
    try:
        size = path.stat().st_size
        if size != expected:
            raise CorpusError(
                f"{path} holds {size:,} bytes where its meta.json says {expected:,}; "
                "prepare the corpus again"
            )
        return np.memmap(path, dtype=token, mode="r", shape=(tokens,))
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}; prepare it again") from error


def is_intact(corpus: Corpus) -> bool:
    """Return whether every file of the corpus still has the hash in its meta.json.

    :raises CorpusError: if one cannot be read.
    """
    heldout_sha = file_sha256(corpus.directory / HELDOUT)
    tokenizer_json = None
    if corpus.info.tokenizer != "bytes":
        tokenizer_json = (corpus.directory / TOKENIZER).read_bytes()
    sha = corpus_sha256(file_sha256(corpus.directory / TRAIN), heldout_sha, tokenizer_json)
    return heldout_sha == corpus.info.heldout_sha256 and sha == corpus.info.sha256


def corpus_sha256(train_sha: str, heldout_sha: str, tokenizer_json: bytes | None) -> str:
    """Return the identity of a corpus from those of its parts; no tokenizer.json means bytes."""
    tokenizer_sha = hashlib.sha256(tokenizer_json or b"bytes").hexdigest()
    identity = f"train {train_sha} heldout {heldout_sha} tokenizer {tokenizer_sha}"
    return hashlib.sha256(identity.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a corpus' file, or of a text to score.

    :raises CorpusError: if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}; prepare it again") from error


def corpus_directories(cache_dir: Path) -> list[Path]:
    """Return the folders of a cache that hold a corpus, sorted by name."""
    return sorted(path.parent for path in cache_dir.glob(f"[!.]*/{META}"))


def find_corpus(name: str, cache_dir: Path) -> Corpus:
    """Return the corpus in the directory ``name``, or the one in the cache of that name.

    A cached corpus is named by its folder, a prefix of its folder's name, or its own name.

    :raises CorpusError: if there is none, or more than one.
    """
    if (Path(name) / META).is_file():
        return open_corpus(Path(name).absolute())
    matches = [path for path in corpus_directories(cache_dir) if path.name.startswith(name)]
    exact = [path for path in matches if path.name == name or path.name.rpartition("-")[0] == name]
    matches = exact or matches
    if len(matches) == 1:
        return open_corpus(matches[0])
    if not matches:
        raise CorpusError(
            f"there is no corpus {name!r} in {cache_dir}; see: autoresearch data list"
        )
    folders = ", ".join(path.name for path in matches)
    raise CorpusError(f"{name!r} names {len(matches)} corpora; choose one of {folders}")


# --- building ---


@contextmanager
def workspace(cache_dir: Path) -> Iterator[Path]:
    """Yield a folder of the cache to build a corpus in, once no other builder is at work.

    :raises MachineryError: if the disk refuses.
    """
    with ExitStack() as cleanup:
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


def publish(
    directory: Path,
    folder: str,
    *,
    name: str,
    tokenizer: tuple[str, int, bytes | None],
    heldout: Batches,
    train: Batches,
    documents: int | None = None,
) -> Corpus:
    """Write the files of a corpus into the workspace, and rename it to ``folder``.

    A damaged corpus of that name is replaced.

    :param tokenizer: its label, the size of its vocabulary, and its tokenizer.json if it has one.
    :param documents: documents before those of one normal form were dropped; None: none were.
    :raises MachineryError: if the disk refuses.
    """
    label, vocab_size, tokenizer_json = tokenizer
    heldout_sha, held = _write_tokens(directory / HELDOUT, heldout)
    train_sha, trained = _write_tokens(directory / TRAIN, train)
    kept = held["documents"] + trained["documents"]
    info = CorpusInfo(
        name=name,
        sha256=corpus_sha256(train_sha, heldout_sha, tokenizer_json),
        heldout_sha256=heldout_sha,
        tokenizer=label,
        vocab_size=vocab_size,
        separator_id=vocab_size - 1,
        dtype=dtype_name(vocab_size),
        documents=documents or kept,
        duplicates=(documents or kept) - kept,
        **{f"heldout_{unit}": count for unit, count in held.items()},
        **{f"train_{unit}": count for unit, count in trained.items()},
    )
    target = directory.parent / folder
    with writing_corpus(directory.parent):
        if tokenizer_json is not None:
            replace_file(directory / TOKENIZER, tokenizer_json, durable=True)
        replace_file(directory / META, info.model_dump_json(indent=2) + "\n", durable=True)
        shutil.rmtree(target, ignore_errors=True)
        directory.chmod(0o755)
        directory.rename(target)
        sync_directory(target.parent)
    return open_corpus(target)


def _write_tokens(path: Path, batches: Batches) -> tuple[str, dict[str, int]]:
    """Write a token file, synced to disk; return its hash and its counts."""
    sha256 = hashlib.sha256()
    counts = {"documents": 0, "tokens": 0, "bytes": 0}
    with writing_corpus(path.parent), path.open("xb") as file:
        for batch, documents, text_bytes in batches:
            data = batch.view(np.uint8).data
            file.write(data)
            sha256.update(data)
            counts["tokens"] += len(batch)
            counts["documents"] += documents
            counts["bytes"] += text_bytes
        file.flush()
        os.fsync(file.fileno())
    return sha256.hexdigest(), counts
