"""Cut text into documents, store them on disk, and choose those to hold out.

A document of up to 64 KiB stays whole. A larger one is cut into pieces of 4 to 16 KiB, each a
document of its own, so that one huge file can still be split into train and held-out text. The cuts
follow the content (a blank line, or one line in 32 by its checksum), so they realign after an
insertion. Two versions of a large file therefore share most pieces, which are recognized as
duplicates. Pieces of one document can fall on both sides of the split. They share author and topic,
as two documents of one source do, but no text.

Two documents are duplicates if their normal forms are equal: Unicode NFC, every run of white space
collapsed to one space, none at either end, case kept. Other near duplicates (a license header, a
renamed variable) are not detected.

The :class:`Spool` reads sources once, so the hashed text is the tokenized text even if a file
changes or a stream cannot be rewound. Memory holds 40 bytes per document; the text is in an unnamed
temporary file that vanishes with the process. :func:`split` chooses the held-out documents by the
hash of their content, never by position or name.
"""

import hashlib
import os
import tempfile
import unicodedata
import zlib
from array import array
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autoresearch.closing import Closing
from autoresearch.errors import CorpusError
from autoresearch.files import writing

WHOLE_BYTES = 64 << 10
"""Largest document that stays whole."""
PIECE_MIN_BYTES = 4 << 10
PIECE_MAX_BYTES = 16 << 10
CUT_ONE_LINE_IN = 32

DIGEST_BYTES = 16


def cut(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the documents of one text, given in blocks of any size.

    The joined documents are the text, and do not depend on the block bounds. An empty text has
    none.
    """
    pending = b""
    oversized = False
    for block in blocks:
        pending += block
        oversized = oversized or len(pending) > WHOLE_BYTES
        if oversized:
            start = 0
            # Strictly more than a piece, so that a cut never depends on text still to come.
            while len(pending) - start > PIECE_MAX_BYTES:
                end = _piece_end(pending, start)
                yield pending[start:end]
                start = end
            pending = pending[start:]
    if pending:
        yield pending


def _piece_end(text: bytes, start: int) -> int:
    """Return the end of the piece that begins at ``start``; ``text`` extends past the largest
    piece."""
    limit = start + PIECE_MAX_BYTES
    newline = text.find(b"\n", start + PIECE_MIN_BYTES - 1, limit)
    line_start = max(text.rfind(b"\n", start, newline) + 1, start)
    while newline >= 0:
        line = text[line_start:newline]
        if not line or zlib.crc32(line) % CUT_ONE_LINE_IN == 0:
            return newline + 1
        line_start = newline + 1
        newline = text.find(b"\n", line_start, limit)
    last_newline = text.rfind(b"\n", start, limit)
    if last_newline >= 0:
        return last_newline + 1
    for end in range(limit, limit - 4, -1):
        if text[end] & 0xC0 != 0x80:  # not in the middle of a UTF-8 character
            return end
    return limit  # not UTF-8 at all, which the reader of the pieces reports


def normal_form(text: bytes) -> bytes:
    """Return UTF-8 text as it is compared: NFC, white space collapsed, case kept; empty if
    blank."""
    return " ".join(unicodedata.normalize("NFC", text.decode()).split()).encode()


def fingerprint(text: bytes) -> bytes | None:
    """Return the digests of a document's normal form and of its exact bytes, joined; None if
    blank."""
    normal = normal_form(text)
    if not normal:
        return None
    return b"".join(
        hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest() for data in (normal, text)
    )


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


HELDOUT_AT_MOST_ONE_IN = 10
"""At most a tenth of the de-duplicated text is held out."""
WANTED_DOCUMENTS = 8
"""Documents to hold out if the fraction allows it, so that no single one decides scores."""
NEEDED_DOCUMENTS = 2
NEEDED_BYTES = 1024


def split(spool: Spool, heldout_bytes: int) -> tuple[Indices, Indices]:
    """Hold out about ``heldout_bytes`` UTF-8 bytes of the distinct documents; return the indices of
    the held-out ones and of the others, in the order of the documents' hashes.

    Documents are taken in the order of their hashes until they reach ``heldout_bytes`` and number
    eight. One that would bring the held-out text above a tenth of all text is skipped. So the split
    depends only on the set of documents.

    :raises CorpusError: if a tenth of the text holds less than two documents of 1 KiB together.
    """
    distinct = spool.distinct()
    sizes = spool.sizes()[distinct]
    total = int(sizes.sum())
    is_heldout = choose_heldout(sizes, heldout_bytes)
    held = int(sizes[is_heldout].sum())
    if int(is_heldout.sum()) < NEEDED_DOCUMENTS or held < NEEDED_BYTES:
        raise CorpusError(
            f"the text is too small to hold any of it out: a tenth of its {total:,} distinct bytes "
            f"in {len(distinct):,} documents must hold {NEEDED_DOCUMENTS} documents of "
            f"{NEEDED_BYTES:,} bytes together; add more text"
        )
    return distinct[is_heldout], distinct[~is_heldout]


def choose_heldout(
    sizes: Indices, heldout_bytes: int
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mark the documents to hold out, given their bytes in the order of their hashes."""
    limit = int(sizes.sum()) // HELDOUT_AT_MOST_ONE_IN
    target = min(heldout_bytes, limit)
    chosen = np.zeros(len(sizes), dtype=np.bool_)
    held = taken = 0
    for position, size in enumerate(sizes.tolist()):
        if held >= target and taken >= WANTED_DOCUMENTS:
            break
        if held + size <= limit:
            chosen[position] = True
            held += size
            taken += 1
    return chosen
