"""Check that the hand-written reference computes what a trial computes, so that their race is
fair."""

import math
from pathlib import Path

import pytest

from bench import reference_gpt
from tests.support.configs import config
from trainer.corpus.prepare import random_corpus
from trainer.schema import Budget, TrialOk, TrialSpec
from trainer.training.child import run_trial

VOCAB = 300


def spec(folder: Path, **changes: object) -> TrialSpec:
    corpus = random_corpus(folder / "corpora", vocab_size=VOCAB, longest_seq_len=32)
    fields = {"n_layer": 2, "n_head": 2, "d_model": 32, "d_ff": 64, "batch_size": 4, "seq_len": 32}
    return TrialSpec(
        trial_id="one",
        config=config(**{**fields, "precision": "fp32", "lr_warmup": 2, **changes}),
        seed=3,
        corpus_dir=str(corpus.directory),
        corpus_sha256=corpus.info.sha256,
        budget=Budget(amount=12),
        threads=1,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation": "relu2", "norm": "rmsnorm", "positions": "rotary", "qk_norm": True}
        | {"tie_embeddings": False},
        {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "n_kv_head": 1},
        {"activation": "geglu", "qk_norm": True},
    ],
    ids=str,
)
def test_the_reference_is_the_trial_by_hand(changes: dict[str, object], tmp_path: Path) -> None:
    asked = spec(tmp_path, **changes)
    ours = run_trial(asked, tmp_path)
    theirs = reference_gpt.run(asked)
    assert isinstance(ours, TrialOk)
    assert theirs.train_loss_first == pytest.approx(ours.train_loss_first, rel=1e-5)
    assert theirs.train_loss_last == pytest.approx(ours.train_loss_last, rel=1e-4)
    assert theirs.train_loss_last != pytest.approx(ours.train_loss_first, rel=1e-5), "it trained"
    assert theirs.val_bpb == pytest.approx(ours.val_bpb, rel=1e-4)
    assert (theirs.params, theirs.val_tokens, theirs.tokens) == (
        ours.params,
        ours.val_tokens,
        ours.tokens,
    )


def test_in_bf16_it_starts_at_even_odds(tmp_path: Path) -> None:
    found = reference_gpt.run(spec(tmp_path, precision="bf16"))
    assert found.train_loss_first == pytest.approx(math.log(VOCAB), abs=0.2)


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        reference_gpt.run(spec(tmp_path, norm_place="output"))


def test_the_command_leaves_a_result(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(spec(tmp_path).model_dump_json())
    reference_gpt.main(str(path), str(tmp_path))
    found = TrialOk.model_validate_json((tmp_path / "result.json").read_bytes())
    assert found.backend == "reference"
    assert found.steps == 12
