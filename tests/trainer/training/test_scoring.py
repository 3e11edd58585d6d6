"""Scoring more texts changes no other number, and a holdout split is never trained on."""

import math
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import CorpusError
from tests.support.corpora import prose, write_corpus
from tests.support.trials import tiny_spec, trial_ok, trial_spec
from trainer.corpus import Corpus
from trainer.corpus.second_text import FreshText, holdout_split
from trainer.isolation.outcome import contradiction
from trainer.spec import ScoredText, TextPart, TextScore, TrialOk
from trainer.training.child import run_trial

DOCUMENTS = [prose(900, seed=10 + number) for number in range(60)]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return write_corpus(tmp_path / "corpus", train=DOCUMENTS)


@pytest.fixture
def aside(corpus: Corpus) -> FreshText:
    text = holdout_split(corpus)
    assert text is not None
    return text


def trained(corpus: Corpus, folder: Path, **changes: Any) -> TrialOk:
    folder.mkdir()
    spec = tiny_spec(corpus, **changes)
    result = run_trial(spec, folder)
    assert isinstance(result, TrialOk)
    assert not contradiction(spec, result)
    return result


def test_scoring_more_changes_no_other_number(
    corpus: Corpus, aside: FreshText, tmp_path: Path
) -> None:
    text = aside.written(tmp_path / "texts")
    plain, more = (
        trained(corpus, tmp_path / name, texts=texts) for name, texts in (("a", ()), ("b", (text,)))
    )
    assert (plain.val_bpb, plain.train_loss_last) == (more.val_bpb, more.train_loss_last)
    assert (plain.texts, len(more.texts)) == ((), 1)
    assert "texts" not in plain.model_dump(mode="json")


def test_a_text_is_scored_as_the_held_out_text_is(
    corpus: Corpus, aside: FreshText, tmp_path: Path
) -> None:
    """The corpus's own held-out text, as a text of one part, gets the same score to the last
    bit."""
    heldout = FreshText(
        name="again",
        tokens=corpus.heldout,
        parts=(TextPart(tokens=corpus.info.heldout_tokens, bytes=corpus.info.heldout_bytes),),
        documents=2,
    ).written(tmp_path / "texts")
    result = trained(corpus, tmp_path / "a", texts=(heldout, aside.written(tmp_path / "texts")))
    again, fresh = result.texts
    assert (again.val_bpb, again.val_tokens) == (result.val_bpb, result.val_tokens)
    assert again.parts_bpb == (again.val_bpb,)
    weights = [part.bytes for part in aside.parts]
    whole = math.fsum(w * b for w, b in zip(weights, fresh.parts_bpb, strict=True)) / sum(weights)
    assert fresh.val_bpb == pytest.approx(whole, rel=1e-12)
    assert len(set(fresh.parts_bpb)) == len(fresh.parts_bpb)


def test_what_is_set_aside_is_not_trained_on(
    corpus: Corpus, aside: FreshText, tmp_path: Path
) -> None:
    """Training on a prefix of the tokens equals training on a corpus that ends there, bit for bit,
    and differs from training on the whole."""
    shorter = write_corpus(tmp_path / "shorter", train=DOCUMENTS[: -aside.documents])
    held_back = trained(corpus, tmp_path / "a", train_tokens=aside.train_tokens)
    without = trained(shorter, tmp_path / "b")
    assert held_back.val_bpb == without.val_bpb
    assert held_back.val_bpb != trained(corpus, tmp_path / "c").val_bpb


@pytest.mark.parametrize("what", ["another text", "more tokens than there are"])
def test_what_was_not_meant_is_refused_before_anything_is_trained(
    corpus: Corpus, aside: FreshText, tmp_path: Path, what: str
) -> None:
    text = aside.written(tmp_path / "texts")
    changes: dict[str, Any] = {"texts": (text,)}
    if what == "another text":
        path = Path(text.path)
        path.write_bytes(path.read_bytes()[::-1])
    else:
        changes = {"train_tokens": corpus.info.train_tokens + 1}
    with pytest.raises(CorpusError):
        trained(corpus, tmp_path / "a", **changes)
    assert not (tmp_path / "a" / "curve.jsonl").exists()


TEXT = ScoredText(
    name="fresh",
    path="/t",
    sha256="a" * 64,
    parts=(TextPart(tokens=11, bytes=10), TextPart(tokens=31, bytes=30)),
)
SCORE = TextScore(sha256="a" * 64, val_bpb=2.75, val_bytes=40, val_tokens=40, parts_bpb=(2, 3))


@pytest.mark.parametrize(
    "scored",
    [
        (),
        (SCORE, SCORE),
        (SCORE.model_copy(update={"sha256": "b" * 64}),),
        (SCORE.model_copy(update={"val_bytes": 39}),),
        (SCORE.model_copy(update={"val_tokens": 42}),),
        (SCORE.model_copy(update={"parts_bpb": (2.0, 3.0, 3.0)}),),
        (SCORE.model_copy(update={"val_bpb": 2.7}),),
    ],
)
def test_a_result_that_says_otherwise_than_its_order_is_none(scored: tuple[TextScore, ...]) -> None:
    spec = trial_spec(texts=(TEXT,))
    assert not contradiction(spec, trial_ok(spec, texts=(SCORE,)))
    assert contradiction(spec, trial_ok(spec, texts=scored))


def test_a_result_may_not_speak_of_texts_that_nobody_asked_for() -> None:
    spec = trial_spec()
    assert contradiction(spec, trial_ok(spec, texts=(SCORE,)))
