"""Open and find prepared corpora on disk.

CACHE/
  NAME-KEY/                 KEY is a hash of the text and the settings
    meta.json               CorpusInfo
    train.bin heldout.bin   little-endian tokens, a separator before each document
    tokenizer.json          except for bytes
  .building-…/              being built: see :mod:`trainer.corpus.workspace`
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from pydantic import ValidationError

from autoresearch.errors import CorpusError
from autoresearch.values import explain
from trainer.corpus.tokenization import ByteTokenizer, JsonTokenizer, Tokenizer, token_dtype
from trainer.spec import CorpusInfo

META = "meta.json"
TRAIN = "train.bin"
HELDOUT = "heldout.bin"
TOKENIZER = "tokenizer.json"

_CORPUS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


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


def check_name(name: str) -> str:
    """Return the name if a folder can have it.

    :raises CorpusError: otherwise.
    """
    if not _CORPUS_NAME.fullmatch(name):
        raise CorpusError(
            f"a corpus cannot be named {name!r}; use up to 64 letters, digits and . _ + -"
        )
    return name
