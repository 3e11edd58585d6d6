"""Build a corpus atomically.

It is built in a ``.building-`` folder of the cache, and renamed when complete and synced. The
builder locks the folder's ``.lock`` file, which the kernel releases with the process. An unlocked
``.building-`` folder is from a preparation that died, and the next one removes it.
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
from typing import BinaryIO, Self

import numpy as np

from autoresearch.errors import CorpusError
from autoresearch.files import sync_directory
from trainer.corpus.documents import writing_corpus
from trainer.corpus.store import Corpus, is_intact, open_corpus
from trainer.corpus.tokenization import Tokens

BUILDING = ".building-"
LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class WrittenTokens:
    """A complete token file, synced to disk."""

    sha256: str
    tokens: int
    """Token count, separators included."""
    documents: int
    text_bytes: int
    """UTF-8 bytes of the documents."""


def write_tokens(path: Path, batches: Iterable[tuple[Tokens, int, int]]) -> WrittenTokens:
    """Write a new token file and sync it to disk.

    :param batches: the tokens of some documents, separators included; how many documents they are;
        and their UTF-8 bytes.
    :raises MachineryError: if the disk refuses.
    """
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
    return WrittenTokens(sha256.hexdigest(), tokens, documents, text_bytes)


class Workspace:
    """A folder of a cache to build a corpus in, removed at the end of the ``with`` block.

    :raises MachineryError: from any method and from the block, if the disk refuses.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir.absolute()
        self._cleanup = contextlib.ExitStack()
        self.directory = self._cache_dir

    def __enter__(self) -> Self:
        with writing_corpus(self._cache_dir):
            self._cache_dir.mkdir(parents=True, exist_ok=True)
            with self._cache_lock():
                _remove_abandoned(self._cache_dir)
                self.directory = Path(tempfile.mkdtemp(prefix=BUILDING, dir=self._cache_dir))
                self._cleanup.callback(shutil.rmtree, self.directory, ignore_errors=True)
                lock = self._cleanup.enter_context((self.directory / LOCK).open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def existing(self, folder: str) -> Corpus | None:
        """Return the corpus of that folder name, if it exists and is intact."""
        try:
            corpus = open_corpus(self._cache_dir / folder)
            return corpus if is_intact(corpus) else None
        except CorpusError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file and sync it."""
        with writing_corpus(self.directory), (self.directory / name).open("xb") as file:
            file.write(data)
            _sync(file)

    def publish(self, folder: str) -> Corpus:
        """Rename the built corpus to ``folder``, unless a valid corpus was put there meanwhile."""
        target = self._cache_dir / folder
        with writing_corpus(self._cache_dir), self._cache_lock():
            corpus = self.existing(folder)
            if corpus is not None:
                return corpus
            if target.exists():  # damaged
                damaged = Path(tempfile.mkdtemp(prefix=BUILDING, dir=self._cache_dir))
                target.rename(damaged)
                shutil.rmtree(damaged, ignore_errors=True)
            sync_directory(self.directory)
            (self.directory / LOCK).unlink()
            self.directory.chmod(0o755)
            self.directory.rename(target)
            sync_directory(self._cache_dir)
        return open_corpus(target)

    @contextlib.contextmanager
    def _cache_lock(self) -> Iterator[None]:
        """Hold the cache lock briefly, while a folder appears under either kind of name."""
        with (self._cache_dir / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _remove_abandoned(cache_dir: Path) -> None:
    for directory in cache_dir.glob(f"{BUILDING}*"):
        try:
            with (directory / LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            pass  # its builder died before locking, or it is a damaged corpus that was moved away
        except (BlockingIOError, PermissionError):
            continue  # being built, or another user's
        shutil.rmtree(directory, ignore_errors=True)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
