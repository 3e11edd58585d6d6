"""Corpora and texts on their way to a node: whole, by hash, once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from autoresearch.errors import CorpusError
from tests.support.asked_nodes import AskedNode as Node
from tests.support.corpora import prose
from tests.support.trials import trial_spec
from trainer.corpus import Corpus, open_corpus, prepare
from trainer.executors.ray.parcels import Parcels
from trainer.executors.ray.shipping import Shipping
from trainer.spec import ScoredText, TextPart

HERE = Path("/nonexistent/trials/t000001")
"""A trial's directory, of which only a script's campaign would matter."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("text")
    for number in range(20):
        (folder / f"{number}.txt").write_bytes(prose(3000, seed=number))
    return prepare([str(folder)], tokenizer="bpe:300", cache_dir=folder / "cache")


def test_a_corpus_is_sent_once_and_is_the_same_there(corpus: Corpus, tmp_path: Path) -> None:
    spec = trial_spec(corpus.directory, corpus_sha256=corpus.info.sha256)
    node, ship = Node(tmp_path), Shipping()
    there = ship.localised(spec, node, HERE)
    assert there.corpus_dir != spec.corpus_dir
    assert open_corpus(Path(there.corpus_dir)).info == corpus.info
    assert node.asked.count("take") == 4
    assert ship.localised(spec, node, HERE) == there
    assert Shipping().localised(spec, Node(tmp_path), HERE) == there, (
        "another driver finds it there"
    )
    again = Node(tmp_path)
    Shipping().localised(spec, again, HERE)
    assert again.asked == ["find"]


def test_a_corpus_that_changed_on_its_way_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    spec = trial_spec(corpus.directory, corpus_sha256=corpus.info.sha256)
    torn = Node(tmp_path, lambda data: data[:-1] + b"!")
    with pytest.raises(CorpusError):
        Shipping().localised(spec, torn, HERE)
    assert not list((tmp_path / "corpora").glob("[!.]*"))
    assert Shipping().localised(spec, Node(tmp_path), HERE).corpus_dir.startswith(str(tmp_path))


def test_one_that_was_damaged_there_is_sent_anew(corpus: Corpus, tmp_path: Path) -> None:
    spec = trial_spec(corpus.directory, corpus_sha256=corpus.info.sha256)
    there = Path(Shipping().localised(spec, Node(tmp_path), HERE).corpus_dir)
    data = bytearray((there / "train.bin").read_bytes())
    data[100] ^= 1
    (there / "train.bin").write_bytes(data)
    Shipping().localised(spec, Node(tmp_path), HERE)
    assert (there / "train.bin").read_bytes() == (corpus.directory / "train.bin").read_bytes()


def test_a_text_is_sent_by_its_hash_too(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "second.bin"
    path.write_bytes(bytes(range(200)))
    text = ScoredText(
        name="second",
        path=str(path),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        parts=(TextPart(tokens=100, bytes=90),),
    )
    spec = trial_spec(corpus.directory, corpus_sha256=corpus.info.sha256, texts=(text,))
    [there] = Shipping().localised(spec, Node(tmp_path / "node"), HERE).texts
    assert Path(there.path).is_relative_to(tmp_path / "node")
    assert Path(there.path).read_bytes() == path.read_bytes()


def test_no_other_file_is_taken(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no file of a corpus is called '\.\./x'"):
        Parcels(tmp_path).take("a" * 64, "../x", b"")
