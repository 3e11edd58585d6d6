"""What counts as one document, and when two documents are the same.

A document of up to 64 KiB stays whole. A larger one is cut into pieces of 4 to 16 KiB, each then a
document of its own, so that one huge file can still be split into train and held-out text. The
cuts follow the content (a blank line, or one line in 32 by its checksum): after an insertion the
cuts fall into step again, so that two versions of a large file share most pieces and those pieces
are recognised as duplicates. Pieces of one oversized document can fall on both sides of the split:
they share an author and a topic, as two documents of one source do, but no text beyond that.

Two documents are duplicates when their normal forms are equal: Unicode NFC, every run of white
space collapsed to one space, none at either end, case kept. Near duplicates beyond that (a licence
header, a renamed variable) are not looked for.
"""

from __future__ import annotations

import hashlib
import unicodedata
import zlib
from collections.abc import Iterable, Iterator

import numpy as np

WHOLE_BYTES = 64 << 10
"""The largest document that is left whole."""
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
    """One text, given in blocks of any size, as its documents.

    The documents joined are the text, and do not depend on where the blocks end. An empty text
    has none.
    """
    pending = b""
    oversized = False
    for block in blocks:
        pending += block
        oversized = oversized or len(pending) > WHOLE_BYTES
        if oversized:
            start = 0
            # Strictly more than a piece, so that a cut never hangs on what is still to come.
            while len(pending) - start > PIECE_MAX_BYTES:
                end = _piece_end(pending, start)
                yield pending[start:end]
                start = end
            pending = pending[start:]
    if pending:
        yield pending


def _piece_end(text: bytes, start: int) -> int:
    """Where the piece that begins at ``start`` ends; ``text`` reaches past the largest piece."""
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
    return limit  # not UTF-8 at all, which the reader of the pieces will say


def normal_form(text: bytes) -> bytes:
    """UTF-8 text as it is compared: NFC, white space collapsed, case kept; empty when blank."""
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
    """The digests of a document's normal form and of its exact bytes, joined; None when blank."""
    normal = normal_form(text)
    if not normal:
        return None
    return _digest(normal) + _digest(text)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
