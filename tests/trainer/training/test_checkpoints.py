"""Checkpoint evaluations, averages and more texts are exact and change no other number."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from autoresearch.errors import CorpusError
from tests.support.commands import command, command_spec
from tests.support.corpora import prose, write_corpus
from tests.support.curves import left_by
from tests.support.present import known
from tests.support.trials import tiny_spec, trial_ok, trial_spec
from trainer.corpus import Corpus
from trainer.corpus.second_text import FreshText, holdout_split
from trainer.isolation.outcome import contradiction
from trainer.schema import (
    Averaging,
    Budget,
    Checkpoint,
    CommandOk,
    ScoredText,
    TextPart,
    TextScore,
    TrialFailed,
    TrialOk,
    TrialSpec,
)
from trainer.training.checkpoints import RunningAverage
from trainer.training.child import run_trial

DOCUMENTS = [prose(900, seed=10 + number) for number in range(60)]
EMA, LAWA = Averaging(form="ema", steps=3), Averaging(form="lawa", steps=4)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write_corpus(tmp_path_factory.mktemp("text") / "corpus", train=DOCUMENTS)


def trained(corpus: Corpus, folder: Path, steps: int = 8, **changes: Any) -> TrialOk:
    folder.mkdir()
    spec = tiny_spec(corpus, **{"budget": Budget(amount=steps), **changes})
    result = run_trial(spec, folder)
    assert isinstance(result, TrialOk)
    assert not contradiction(spec, result)
    return result


@pytest.fixture
def aside(corpus: Corpus) -> FreshText:
    return known(holdout_split(corpus))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_scoring_more_changes_no_other_number(
    corpus: Corpus, aside: FreshText, tmp_path: Path, precision: str
) -> None:
    checkpoints = (
        Checkpoint(step=2),
        Checkpoint(step=5, average=EMA),
        Checkpoint(average=LAWA),
        Checkpoint(),
    )
    texts = (aside.written(tmp_path / "texts"),)
    recipe = {"precision": precision}
    plain = trained(corpus, tmp_path / "a", recipe=recipe)
    more = trained(corpus, tmp_path / "b", recipe=recipe, checkpoints=checkpoints, texts=texts)
    assert (plain.val_bpb, plain.train_loss_last) == (more.val_bpb, more.train_loss_last)
    curves = [[point.loss for point in left_by(tmp_path / name)] for name in "ab"]
    assert curves[0] == curves[1]
    assert len(set(more.checkpoints_bpb)) == 4
    assert more.checkpoints_bpb[3] == more.val_bpb
    assert (plain.texts, len(more.texts)) == ((), 1)
    assert not {"checkpoints_bpb", "texts"} & plain.model_dump(mode="json").keys()


def test_a_text_is_scored_as_the_heldout(corpus: Corpus, aside: FreshText, tmp_path: Path) -> None:
    """The corpus's own held-out text, as a text of one part, gets the same score to the last
    bit."""
    part = TextPart(tokens=corpus.info.heldout_tokens, bytes=corpus.info.heldout_bytes)
    heldout = FreshText("again", corpus.heldout, (part,), 2).written(tmp_path / "texts")
    texts = (heldout, aside.written(tmp_path / "texts"))
    result = trained(corpus, tmp_path / "a", texts=texts)
    again, fresh = result.texts
    assert (again.val_bpb, again.val_tokens) == (result.val_bpb, result.val_tokens)
    assert again.parts_bpb == (again.val_bpb,)
    weights = [part.bytes for part in aside.parts]
    whole = math.fsum(w * b for w, b in zip(weights, fresh.parts_bpb, strict=True)) / sum(weights)
    assert fresh.val_bpb == pytest.approx(whole, rel=1e-12)
    assert len(set(fresh.parts_bpb)) == len(fresh.parts_bpb)


def test_the_holdout_is_not_trained_on(corpus: Corpus, aside: FreshText, tmp_path: Path) -> None:
    """Training on a prefix of the tokens equals training on a corpus that ends there."""
    shorter = write_corpus(tmp_path / "shorter", train=DOCUMENTS[: -aside.documents])
    held_back = trained(corpus, tmp_path / "a", train_tokens=aside.train_tokens)
    assert held_back.val_bpb == trained(shorter, tmp_path / "b").val_bpb
    assert held_back.val_bpb != trained(corpus, tmp_path / "c").val_bpb


@pytest.mark.parametrize("what", ["another text", "more tokens than there are"])
def test_wrong_data_is_refused(corpus: Corpus, aside: FreshText, tmp_path: Path, what: str) -> None:
    text = aside.written(tmp_path / "texts")
    changes: dict[str, Any] = {"texts": (text,)}
    if what == "another text":
        Path(text.path).write_bytes(b"others")
    else:
        changes = {"train_tokens": corpus.info.train_tokens + 1}
    with pytest.raises(CorpusError):
        trained(corpus, tmp_path / "a", **changes)
    assert not (tmp_path / "a" / "curve.jsonl").exists()


def test_a_look_sees_what_a_trial_that_ends_there_scores(corpus: Corpus, tmp_path: Path) -> None:
    checkpoints = (
        Checkpoint(step=5),
        Checkpoint(step=5, average=LAWA),
        Checkpoint(step=5, average=EMA),
    )
    whole = trained(corpus, tmp_path / "whole", checkpoints=checkpoints)
    for place, average in enumerate((None, LAWA, EMA)):
        short = trained(corpus, tmp_path / f"{place}", steps=5, average=average)
        assert short.val_bpb == whole.checkpoints_bpb[place]


def test_the_average_scores_every_text(corpus: Corpus, aside: FreshText, tmp_path: Path) -> None:
    texts = (aside.written(tmp_path / "texts"),)
    plain = trained(corpus, tmp_path / "plain", texts=texts)
    mean = trained(
        corpus, tmp_path / "mean", texts=texts, average=LAWA, checkpoints=(Checkpoint(),)
    )
    assert mean.val_bpb != plain.val_bpb == mean.checkpoints_bpb[0]
    assert mean.texts[0].val_bpb != plain.texts[0].val_bpb
    one = trained(corpus, tmp_path / "one", average=Averaging(form="lawa", steps=1))
    assert one.val_bpb == plain.val_bpb, "the mean of the last weights alone is the last weights"


def test_a_cooldown_changes_only_the_end(corpus: Corpus, tmp_path: Path) -> None:
    trained(corpus, tmp_path / "plain")
    trained(corpus, tmp_path / "cooled", cooldown_steps=3)
    plain, cooled = (left_by(tmp_path / name) for name in ("plain", "cooled"))
    rates = [mine.lr / other.lr for mine, other in zip(cooled, plain, strict=True)]
    assert rates == pytest.approx([1, 1, 1, 1, 1, 3 / 4, 2 / 4, 1 / 4])
    assert [point.loss for point in plain[:6]] == [point.loss for point in cooled[:6]]


def test_a_loss_that_is_not_finite_at_a_look_is_a_failure(corpus: Corpus, tmp_path: Path) -> None:
    spec = tiny_spec(corpus, {"lr": 1e30, "lr_warmup": 0}, checkpoints=(Checkpoint(step=1),))
    result = run_trial(spec, tmp_path)
    assert isinstance(result, TrialFailed) and result.status == "nonfinite"


def grown(averaging: Averaging, steps: int) -> tuple[nn.Linear, RunningAverage]:
    """Return a model whose every weight is k at step k, and its average."""
    model = nn.Linear(2, 2)
    average = RunningAverage(model, averaging, steps)
    for step in range(1, steps + 1):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(float(step))
        average.take(step)
    return model, average


@pytest.mark.parametrize(
    ("averaging", "steps", "mean"),
    [
        (LAWA, 10, (7 + 8 + 9 + 10) / 4),
        (LAWA, 3, 2),  # a window longer than the run is all of it
        (
            EMA,
            10,
            sum((2 / 3) ** (10 - step) * step for step in range(1, 11))
            / math.fsum((2 / 3) ** (10 - step) for step in range(1, 11)),
        ),
    ],
)
def test_a_mean_is_the_one_by_hand(averaging: Averaging, steps: int, mean: float) -> None:
    model, average = grown(averaging, steps)
    with pytest.raises(RuntimeError), average.in_place():
        assert model.weight.unique().tolist() == [pytest.approx(mean, rel=1e-6)]
        raise RuntimeError
    assert model.weight.unique().tolist() == [steps]


def test_weights_in_bf16_are_averaged_in_fp32() -> None:
    model = nn.Linear(1, 1, bias=False).to(torch.bfloat16)
    average = RunningAverage(model, Averaging(form="lawa", steps=2), 2)
    for step, value in enumerate((256.0, 258.0), start=1):
        with torch.no_grad():
            model.weight.fill_(value)
        average.take(step)
    assert average._mean[0].item() == 257.0, "which bf16 has no word for"


def test_an_order_that_uses_none_of_it_is_written_as_it_was() -> None:
    written = json.loads(trial_spec().model_dump_json())
    assert not {"average", "cooldown_steps", "checkpoints"} & written.keys()
    more = trial_spec(
        average=EMA, cooldown_steps=2, checkpoints=(Checkpoint(step=3, average=LAWA),)
    )
    assert TrialSpec.model_validate_json(more.model_dump_json()) == more


@pytest.mark.parametrize(
    ("unit", "changes"),
    [
        ("seconds", {"cooldown_steps": 3}),
        ("seconds", {"checkpoints": (Checkpoint(),)}),
        ("seconds", {"average": LAWA}),
        ("steps", {"cooldown_steps": 61}),
        ("steps", {"checkpoints": (Checkpoint(step=61),)}),
    ],
)
def test_what_counts_steps_needs_a_budget_that_has_them(unit: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        trial_spec(budget=Budget.model_validate({"unit": unit, "amount": 60}), **changes)
    trial_spec(budget=Budget(unit="seconds", amount=3), average=EMA)


@pytest.mark.parametrize("text", ["ema", "ema:0", "ema:-1", "mean:3", "lawa:1.5", "ema: 3", ""])
def test_only_averages_that_are_have_a_name(text: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        Averaging.parse(text)
    assert str(Averaging.parse("ema:20")) == "ema:20"


TEXT = ScoredText(
    name="fresh",
    path="/t",
    sha256="a" * 64,
    parts=(TextPart(tokens=11, bytes=10), TextPart(tokens=31, bytes=30)),
)
SCORE = TextScore(sha256="a" * 64, val_bpb=2.75, val_bytes=40, val_tokens=40, parts_bpb=(2, 3))
LOOK = {"checkpoints": (Checkpoint(step=3),)}


@pytest.mark.parametrize(
    ("ordered", "scored", "agrees"),
    [
        ({"texts": (TEXT,)}, {"texts": (SCORE,)}, True),
        ({"texts": (TEXT,)}, {}, False),
        ({"texts": (TEXT,)}, {"texts": (SCORE, SCORE)}, False),
        *(
            ({"texts": (TEXT,)}, {"texts": (SCORE.model_copy(update=wrong),)}, False)
            for wrong in (
                *({"sha256": "b" * 64}, {"val_bytes": 39}, {"val_tokens": 42}, {"val_bpb": 2.7}),
                {"parts_bpb": (2.0, 3.0, 3.0)},
            )
        ),
        ({}, {"texts": (SCORE,)}, False),
        (LOOK, {"checkpoints_bpb": (4.5,)}, True),
        (LOOK, {}, False),
        ({}, {"checkpoints_bpb": (4.5,)}, False),
        ({}, {}, True),
        *(
            ({}, wrong, False)
            for wrong in (
                {"precision": "fp8"},
                {"backend": "megatron"},
                {"steps": 1},
                {"tokens": 1},
            )
        ),
    ],
)
def test_a_result_that_contradicts_its_spec_is_none(
    ordered: dict[str, Any], scored: dict[str, Any], agrees: bool
) -> None:
    spec = trial_spec(**ordered)
    assert (not contradiction(spec, trial_ok(spec, **scored))) == agrees


def test_no_score_is_of_another_trainer_or_direction() -> None:
    ordered = command_spec(command=command())
    scored = CommandOk(score=1.0, train_s=1, setup_s=0)
    turned = scored.model_copy(update={"direction": "maximise"})
    assert not contradiction(ordered, scored)
    assert contradiction(ordered, turned)
    assert contradiction(trial_spec(), scored)
    assert contradiction(ordered, trial_ok(trial_spec()))
