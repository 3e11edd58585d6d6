from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.corpus.documents import WANTED_DOCUMENTS, choose_heldout

sizes_lists = st.lists(st.integers(1, 65_536), min_size=1, max_size=300)


@given(sizes_lists, st.integers(1024, 300_000))
def test_a_tenth_at_most_is_held_out(sizes: list[int], heldout_bytes: int) -> None:
    array = np.array(sizes, dtype=np.int64)
    chosen = choose_heldout(array, heldout_bytes)
    assert int(array[chosen].sum()) * 10 <= sum(sizes)


@given(sizes_lists, st.integers(1024, 300_000))
def test_it_ends_once_it_has_the_bytes_and_the_documents(
    sizes: list[int], heldout_bytes: int
) -> None:
    array = np.array(sizes, dtype=np.int64)
    chosen = choose_heldout(array, heldout_bytes)
    before_last = np.flatnonzero(chosen)[:-1]
    bytes_before, documents_before = int(array[before_last].sum()), len(before_last)
    target = min(heldout_bytes, sum(sizes) // 10)
    assert bytes_before < target or documents_before < WANTED_DOCUMENTS
    passed_over = np.flatnonzero(~chosen)
    held = np.cumsum(np.where(chosen, array, 0))
    for position in passed_over:  # only documents that did not fit, or came after the end
        fits = held[position] + sizes[position] <= sum(sizes) // 10
        taken = int(chosen[:position].sum())
        assert not fits or (held[position] >= target and taken >= WANTED_DOCUMENTS)


def test_of_equal_documents_as_many_are_held_out_as_asked() -> None:
    sizes = np.full(1000, 1000, dtype=np.int64)
    assert int(choose_heldout(sizes, 20_000).sum()) == 20
    assert int(choose_heldout(sizes, 20_001).sum()) == 21
    assert int(choose_heldout(sizes, 1_024).sum()) == WANTED_DOCUMENTS
    assert int(choose_heldout(sizes, 10**9).sum()) == 100


def test_one_huge_document_is_passed_over() -> None:
    sizes = np.array([50_000, *[1000] * 100], dtype=np.int64)
    chosen = choose_heldout(sizes, 10**9)
    assert not chosen[0]
    assert int(chosen.sum()) == 15
