"""Cut text into documents, and decide when two documents are the same.

A document of up to 64 KiB stays whole. A larger one is cut into pieces of 4 to 16 KiB, each a
document of its own, so that one huge file can still be split into train and held-out text. The cuts
follow the content (a blank line, or one line in 32 by its checksum), so they realign after an
insertion. Two versions of a large file therefore share most pieces, which are recognized as
duplicates. Pieces of one document can fall on both sides of the split. They share author and topic,
as two documents of one source do, but no text.

Two documents are duplicates if their normal forms are equal: Unicode NFC, every run of white space
collapsed to one space, none at either end, case kept. Other near duplicates (a license header, a
renamed variable) are not detected.
"""

from __future__ import annotations

import hashlib
import unicodedata
import zlib
from collections.abc import Iterable, Iterator

import numpy as np

WHOLE_BYTES = 64 << 10
"""Largest document that stays whole."""
PIECE_MIN_BYTES = 4 << 10
PIECE_MAX_BYTES = 16 << 10
CUT_ONE_LINE_IN = 32

DIGEST_BYTES = 16

_SPACE = ord(" ")
# str.split() counts these ASCII characters as white space; bytes.split() knows only some of them.
_WHITE_TO_SPACE = bytes(
    _SPACE if byte in b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f" else byte for byte in range(256)
)


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
    if not text.isascii():
        composed = unicodedata.normalize("NFC", text.decode())
        return " ".join(composed.split()).encode()
    spaced = np.frombuffer(text.translate(_WHITE_TO_SPACE), dtype=np.uint8)
    is_ink = spaced != _SPACE
    keep = is_ink.copy()
    keep[1:] |= is_ink[:-1]  # the first space after ink stays
    collapsed: bytes = spaced[keep].tobytes()
    return collapsed.strip(b" ")


def fingerprint(text: bytes) -> bytes | None:
    """Return the digests of a document's normal form and of its exact bytes, joined; None if
    blank."""
    normal = normal_form(text)
    if not normal:
        return None
    return _digest(normal) + _digest(text)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
