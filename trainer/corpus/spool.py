"""Store every document of a preparation on disk in reading order, with fingerprints in memory.

Sources are read once, so the hashed text is the tokenized text even if a file changes or a stream
cannot be rewound. Memory holds 40 bytes per document; the text is in an unnamed temporary file that
vanishes with the process.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autoresearch.closing import Closing
from autoresearch.files import writing
from trainer.corpus.text import DIGEST_BYTES, fingerprint

Indices = npt.NDArray[np.int64]


class Spool(Closing):
    """Documents by index, in the order they were added.

    :raises MachineryError: from any method, if the disk refuses.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with writing_corpus(directory):
            self._file = tempfile.TemporaryFile(dir=directory, buffering=1 << 20)  # noqa: SIM115
        self._fingerprints = bytearray()
        self._ends = array("q", [0])
        self.blank_documents = 0

    def close(self) -> None:
        """Remove it from the disk."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes held, duplicates included."""
        return self._ends[-1]

    def add(self, text: bytes) -> None:
        """Append one document of UTF-8 text; a blank one is only counted."""
        marks = fingerprint(text)
        if marks is None:
            self.blank_documents += 1
            return
        with writing_corpus(self._directory):
            self._file.write(text)
        self._fingerprints += marks
        self._ends.append(self._ends[-1] + len(text))

    def seal(self) -> None:
        """Make everything added readable; nothing may be added afterwards."""
        with writing_corpus(self._directory):
            self._file.flush()

    def sizes(self) -> Indices:
        """Return the UTF-8 bytes of each document."""
        ends: Indices = np.array(self._ends, dtype=np.int64)
        return ends[1:] - ends[:-1]

    def distinct(self) -> Indices:
        """Return one document of each normal form, in the order of their hashes.

        Of several documents with one normal form it takes the one whose exact bytes hash lowest. So
        neither choice nor order depends on a document's source.
        """
        words = np.frombuffer(self._fingerprints, dtype=">u8").reshape(-1, 4)
        order = np.lexsort((words[:, 3], words[:, 2], words[:, 1], words[:, 0]))
        normal = words[order, : DIGEST_BYTES // 8]
        is_first = np.ones(len(order), dtype=np.bool_)
        is_first[1:] = (normal[1:] != normal[:-1]).any(axis=1)
        return order[is_first]

    def exact_digests(self, indices: Indices) -> bytes:
        """Return the digests of these documents' exact bytes, joined."""
        marks = np.frombuffer(self._fingerprints, dtype=np.uint8)
        return marks.reshape(-1, 2 * DIGEST_BYTES)[indices, DIGEST_BYTES:].tobytes()

    def read(self, indices: Iterable[int]) -> Iterator[bytes]:
        """Yield these documents, in this order."""
        descriptor = self._file.fileno()
        for index in indices:
            start, end = self._ends[index], self._ends[index + 1]
            yield os.pread(descriptor, end - start, start)


def writing_corpus(directory: Path) -> AbstractContextManager[None]:
    """Return :func:`writing` for a corpus being built."""
    return writing(f"a corpus under {directory}", instead="choose another folder")
