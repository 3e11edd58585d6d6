"""A holdout split has whole documents that no trial scored or trained on, and exact counts."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import CorpusError
from tests.support.corpora import SEPARATOR_ID, byte_stream, prose, write_corpus
from tests.support.present import known
from tests.support.texts import corpus_texts
from trainer.corpus import Corpus, prepare
from trainer.corpus.second_text import TIMES_HELDOUT, FreshText, _parts, given_text, holdout_split
from trainer.corpus.store import is_intact
from trainer.schema import MOST_PARTS


def documents(count: int, size: int = 900) -> list[bytes]:
    return [prose(size, seed=10 + number) for number in range(count)]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return write_corpus(tmp_path / "corpus", train=documents(60))


@pytest.fixture
def text(corpus: Corpus) -> FreshText:
    return known(holdout_split(corpus))


def test_the_last_documents_are_set_aside_and_nothing_on_disk_changes(corpus: Corpus) -> None:
    before = {path.name: path.read_bytes() for path in corpus.directory.iterdir()}
    text = holdout_split(corpus)
    assert text is not None and text.train_tokens is not None
    together = [*corpus.train[: text.train_tokens].tolist(), *text.tokens.tolist()]
    assert together == corpus.train.tolist()
    assert text.tokens.tolist() == byte_stream(documents(60)[-text.documents :]).tolist()
    assert before == {path.name: path.read_bytes() for path in corpus.directory.iterdir()}


def test_it_is_twice_the_held_out_text_within_a_tenth(corpus: Corpus, text: FreshText) -> None:
    size = sum(part.bytes for part in text.parts)
    longest = max(map(len, documents(60)))
    wanted = min(TIMES_HELDOUT * corpus.info.heldout_bytes, corpus.info.train_bytes // 10)
    assert wanted - longest < size < wanted + longest
    assert size <= corpus.info.train_bytes // 10


def test_parts_are_whole_documents_with_their_bytes(text: FreshText) -> None:
    ends = np.cumsum([part.tokens for part in text.parts])
    assert ends[-1] == len(text.tokens)
    for part, piece in zip(text.parts, np.split(text.tokens, ends[:-1]), strict=True):
        assert piece[0] == SEPARATOR_ID
        assert part.bytes == int((piece != SEPARATOR_ID).sum())


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=80))
def test_parts_hold_everything_and_are_few_and_alike(sizes: list[int]) -> None:
    parts = _parts([(size + 1, size) for size in sizes])
    assert len(parts) <= min(MOST_PARTS, len(sizes))
    assert sum(part.bytes for part in parts) == sum(sizes)
    assert sum(part.tokens for part in parts) == sum(sizes) + len(sizes)
    # Each part ends with the document that completes its share of the whole.
    for first, second in pairwise(np.cumsum([part.bytes for part in parts]).tolist()):
        assert second - first <= sum(sizes) / MOST_PARTS + 2 * max(sizes)


@pytest.mark.parametrize("train", [documents(2, 40_000), documents(15, 1200), documents(40, 20)])
def test_a_small_corpus_sets_nothing_aside(tmp_path: Path, train: list[bytes]) -> None:
    """A tenth of the first corpus holds no document, of the second one, and of the third too few
    bytes."""
    assert holdout_split(write_corpus(tmp_path / "small", train=train)) is None


def test_a_bpe_corpus_counts_bytes_of_text_and_not_tokens(tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    for number, document in enumerate(documents(80)):
        (folder / f"{number}.txt").write_bytes(document + f" é {number}".encode())
    made = prepare([str(folder)], cache_dir=tmp_path / "cache", tokenizer="bpe:300")
    text = known(holdout_split(made))
    tail = list(corpus_texts(made, "train"))[-text.documents :]
    assert sum(part.bytes for part in text.parts) == sum(len(one.encode()) for one in tail)
    assert is_intact(made)


def test_a_given_text_leaves_out_what_the_corpus_has(corpus: Corpus, tmp_path: Path) -> None:
    folder = tmp_path / "others"
    folder.mkdir()
    fresh = [prose(700, seed=500 + number) for number in range(5)]
    # training documents twice, and a held-out one
    known = [documents(60)[0], documents(60)[-1], prose(800, seed=4)]
    for number, document in enumerate([*fresh, *known, fresh[0]]):
        (folder / f"{number}.txt").write_bytes(document)
    text = given_text(str(folder), corpus)
    assert (text.documents, text.left_out, text.train_tokens) == (5, 3, None)
    found = b"".join(bytes([t]) if t < 256 else b"\0" for t in text.tokens.tolist())
    assert sorted(found[1:].split(b"\0")) == sorted(fresh)


def test_a_given_text_does_not_depend_on_file_names(corpus: Corpus, tmp_path: Path) -> None:
    fresh = [prose(700, seed=500 + number) for number in range(5)]
    tokens = []
    for name, order in (("a", fresh), ("b", fresh[::-1])):
        folder = tmp_path / name
        folder.mkdir()
        for number, document in enumerate(order):
            (folder / f"{number}.txt").write_bytes(document)
        tokens.append(given_text(str(folder), corpus).tokens.tolist())
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize(
    ("content", "why"),
    [(documents(60)[3], "is in the corpus tiny too"), (b" \n ", "only white space")],
)
def test_nothing_new_is_refused(corpus: Corpus, tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "one.txt"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=why):
        given_text(str(path), corpus)


def test_its_file_is_mended_where_it_is_damaged(text: FreshText, tmp_path: Path) -> None:
    written = text.written(tmp_path / "texts")
    assert Path(written.path).read_bytes() == text.tokens.tobytes()
    assert (written.tokens, written.parts) == (len(text.tokens), text.parts)
    Path(written.path).write_bytes(b"damaged")
    assert text.written(tmp_path / "texts") == written
    assert Path(written.path).read_bytes() == text.tokens.tobytes()
