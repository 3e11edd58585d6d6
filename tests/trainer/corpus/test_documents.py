"""Text is cut into documents, and some of them are held out."""

import itertools
import random
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import known
from trainer.corpus.documents import (
    PIECE_MAX_BYTES,
    PIECE_MIN_BYTES,
    WANTED_DOCUMENTS,
    WHOLE_BYTES,
    choose_heldout,
    cut,
    fingerprint,
    normal_form,
)


def lines(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [f"line {rng.randrange(10**9)} {'é' * rng.randrange(40)}\n" for _ in range(count)]


def blocks_of(text: bytes, ends: list[int]) -> list[bytes]:
    cuts = [0, *sorted(end % (len(text) + 1) for end in ends), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(cuts)]


def test_a_text_of_ordinary_size_is_one_document() -> None:
    text = b"x" * WHOLE_BYTES
    assert list(cut([text[:1000], text[1000:]])) == [text]
    assert list(cut([])) == []
    assert len(list(cut([text + b"x"]))) > 1


def test_pieces_of_a_large_text_end_with_lines_and_join_to_it() -> None:
    text = "".join(lines(8000)).encode()
    pieces = list(cut([text]))
    assert b"".join(pieces) == text
    assert len(pieces) > 20
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert all(PIECE_MIN_BYTES <= len(piece) <= PIECE_MAX_BYTES for piece in pieces[:-1])


@pytest.mark.parametrize("character", ["x", "é", "学", "🙂"])
def test_a_text_without_lines_is_cut_between_characters(character: str) -> None:
    text = ("a" + character * 60_000).encode()
    pieces = list(cut([text]))
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= max(PIECE_MAX_BYTES, WHOLE_BYTES)
    for piece in pieces:
        piece.decode()


@given(st.lists(st.integers(0, 10**9), max_size=8), st.sampled_from(["\n", "\n\n", "🙂", ""]))
def test_documents_do_not_depend_on_the_blocks(ends: list[int], joint: str) -> None:
    text = joint.join(line.strip() for line in lines(3000)).encode()
    assert list(cut(blocks_of(text, ends))) == list(cut([text]))


def test_cuts_fall_into_step_after_an_insertion() -> None:
    first = lines(20_000)
    second = ["an inserted line\n", *first[:9000], "and another\n", *first[9000:]]
    pieces = [set(cut(["".join(version).encode()])) for version in (first, second)]
    assert len(pieces[0] & pieces[1]) > 0.9 * len(pieces[0])


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]))
    | st.text(alphabet="a \t\n\r\x0b\x0c\x1c\x1f\x85\u2003\u00e9e\u0301")
)
def test_the_normal_form_is_nfc_with_white_space_collapsed(text: str) -> None:
    expected = " ".join(unicodedata.normalize("NFC", text).split())
    assert normal_form(text.encode()).decode() == expected


def test_fingerprints_agree_in_the_first_half_for_duplicates_only() -> None:
    one, two, three = (known(fingerprint(text)) for text in (b"a  b\n", b" a b", b"A b"))
    assert one[:16] == two[:16] != three[:16]
    assert one[16:] != two[16:]
    assert fingerprint(b" \t\r\n") is None


@given(st.lists(st.integers(1, 65_536), min_size=1, max_size=300), st.integers(1024, 300_000))
def test_a_tenth_at_most_is_held_out(sizes: list[int], heldout_bytes: int) -> None:
    array, limit = np.array(sizes, dtype=np.int64), sum(sizes) // 10
    target = min(heldout_bytes, limit)
    chosen = choose_heldout(array, heldout_bytes)
    held = np.cumsum(np.where(chosen, array, 0)) - np.where(chosen, array, 0)
    taken = np.cumsum(chosen) - chosen
    is_enough = (held >= target) & (taken >= WANTED_DOCUMENTS)
    assert np.array_equal(chosen, ~is_enough & (held + array <= limit))
    assert int(array[chosen].sum()) <= limit


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
