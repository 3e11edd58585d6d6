"""Choose the held-out documents by the hash of their content, never by position or name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoresearch.errors import CorpusError
from trainer.corpus.spool import Indices, Spool

HELDOUT_AT_MOST_ONE_IN = 10
"""At most a tenth of the de-duplicated text is held out."""
WANTED_DOCUMENTS = 8
"""Documents to hold out if the fraction allows it, so that no single one decides scores."""
NEEDED_DOCUMENTS = 2
NEEDED_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Split:
    """Indices into the spool, in the order of the documents' hashes."""

    train: Indices
    heldout: Indices


def split(spool: Spool, heldout_bytes: int) -> Split:
    """Hold out about ``heldout_bytes`` UTF-8 bytes of the distinct documents.

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
    return Split(train=distinct[~is_heldout], heldout=distinct[is_heldout])


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
