"""Corpora and texts on a node: sent there once, by hash, verified there, kept there.

    DIRECTORY/corpora/<folder>/         as any prepared corpus
    DIRECTORY/texts/<sha256>.bin        a text that trials score besides

Both are written in a folder of their own and take their place once they hash to what was promised.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from autoresearch.errors import CorpusError
from autoresearch.files import replace_file, writing
from trainer.corpus.store import (
    HELDOUT,
    META,
    TOKENIZER,
    TRAIN,
    corpus_directories,
    is_intact,
    open_corpus,
)
from trainer.corpus.workspace import Workspace

CORPUS_FILES = (META, TOKENIZER, TRAIN, HELDOUT)
"""What a corpus is sent as; one of bytes has no tokenizer."""
TEXT_FILE = "text.bin"


@dataclass
class _Arriving:
    """A parcel of which pieces still come, in a folder that its end removes."""

    sha256: str
    workspace: Workspace
    cleanup: contextlib.ExitStack
    files: dict[str, BinaryIO] = field(default_factory=dict)

    def whole(self) -> Path:
        """All pieces have come and are on the disk; the folder they are in."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        return self.workspace.directory


class Parcels:
    """The node's side: what is there, and what arrives, one parcel at a time.

    :raises MachineryError: from any method, where the disk refuses.
    """

    def __init__(self, directory: Path) -> None:
        self._corpora = directory / "corpora"
        self._texts = directory / "texts"
        self._arriving: _Arriving | None = None
        self._seen: dict[str, Path] = {}
        """Found whole by this process before: hashed once, and not for every trial."""
        self._door = threading.Lock()

    def corpus(self, sha256: str) -> Path | None:
        """The directory of the corpus of that hash, if it is here and not a byte of it has
        changed."""
        for folder in corpus_directories(self._corpora) if sha256 not in self._seen else ():
            with contextlib.suppress(CorpusError):
                corpus = open_corpus(folder)
                if corpus.info.sha256 == sha256 and is_intact(corpus):
                    self._seen[sha256] = corpus.directory
        return self._seen.get(sha256)

    def text(self, sha256: str) -> Path | None:
        """The file of the text of that hash, if it is here and not a byte of it has changed."""
        path = self._texts / f"{sha256}.bin"
        if sha256 not in self._seen:
            with contextlib.suppress(OSError), path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == sha256:
                    self._seen[sha256] = path
        return self._seen.get(sha256)

    def take(self, sha256: str, name: str, data: bytes) -> None:
        """Add a piece to a file of the parcel that is to hash to ``sha256``.

        :raises CorpusError: where no file of a parcel is called so.
        """
        if name not in (*CORPUS_FILES, TEXT_FILE):
            raise CorpusError(f"no file of a corpus is called {name!r}; send one of a corpus")
        with self._door, self._writing():
            arriving = self._expect(sha256)
            if name not in arriving.files:
                path = arriving.workspace.directory / name
                arriving.files[name] = arriving.cleanup.enter_context(path.open("xb"))
            arriving.files[name].write(data)

    def keep_corpus(self, sha256: str, folder: str) -> Path:
        """All pieces have come: hash them, and keep the corpus under that name.

        :raises CorpusError: where it is not the one promised.
        """
        with self._door, self._writing(), self._taken(sha256) as arriving:
            corpus = open_corpus(arriving.whole())
            if corpus.info.sha256 != sha256 or not is_intact(corpus):
                raise CorpusError(
                    f"what arrived as corpus {sha256:.16} hashes to something else; prepare it"
                    " again where it was sent from"
                )
            self._seen[sha256] = arriving.workspace.publish(folder).directory
            return self._seen[sha256]

    def keep_text(self, sha256: str) -> Path:
        """All pieces have come: hash them, and keep the text.

        :raises CorpusError: where it is not the one promised.
        """
        with self._door, self._writing(), self._taken(sha256) as arriving:
            data = (arriving.whole() / TEXT_FILE).read_bytes()
            if hashlib.sha256(data).hexdigest() != sha256:
                raise CorpusError(
                    f"what arrived as text {sha256:.16} hashes to something else; prepare it again"
                    " where it was sent from"
                )
            self._texts.mkdir(parents=True, exist_ok=True)
            self._seen[sha256] = self._texts / f"{sha256}.bin"
            replace_file(self._seen[sha256], data, durable=True)
            return self._seen[sha256]

    def close(self) -> None:
        """Let go of what has not arrived whole."""
        with self._door:
            self._let_go()

    def _let_go(self) -> None:
        if self._arriving is not None:
            self._arriving.cleanup.close()
            self._arriving = None

    def _expect(self, sha256: str) -> _Arriving:
        """The parcel that pieces come for; another one, half come, is let go."""
        if self._arriving is None or self._arriving.sha256 != sha256:
            self._let_go()
            cleanup = contextlib.ExitStack()
            workspace = cleanup.enter_context(Workspace(self._corpora))
            self._arriving = _Arriving(sha256, workspace, cleanup)
        return self._arriving

    @contextlib.contextmanager
    def _taken(self, sha256: str) -> Iterator[_Arriving]:
        """The parcel, which is gone after the block."""
        try:
            yield self._expect(sha256)
        finally:
            self._let_go()

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return writing(f"a corpus under {self._corpora}", instead="set AUTORESEARCH_DATA_DIR there")
