"""Run a trial of the demo's journal again: the same spec gives the same score."""

import tomllib
from pathlib import Path

import pytest

from agent.search.campaign_start import hardware, versions
from autoresearch.errors import CorpusError
from tests.support.places import ROOT
from trainer.backends.products import cpu_multiplies_bf16
from trainer.corpus import Corpus, prepare
from trainer.executors.local import LocalExecutor
from trainer.schema import Limits, TrialOk, TrialSpec
from trajectory.journal import read_rows
from trajectory.rows import CampaignRow, IterationRow

JOURNAL = ROOT / "docs" / "demo" / "trajectory.jsonl"
ROWS = list(read_rows(JOURNAL))
NEAR_BPB = 0.01
"""Tolerance in bits per byte: other processors round differently, and in 60 steps roundings grow. A
change in the computation shows far more (configs of this search lie 0.2 to 0.4 apart)."""

pytestmark = pytest.mark.slow


def campaign() -> CampaignRow:
    row = ROWS[0]
    assert isinstance(row, CampaignRow)
    return row


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Return the journal's corpus: the standard library of the Python it was made with."""
    told, settings = campaign().corpus, tomllib.loads(campaign().menu_toml)["campaign"]
    try:
        made = prepare(
            [settings["corpus"]],
            cache_dir=tmp_path / "corpora",
            tokenizer=settings["tokenizer"],
            heldout_bytes=settings["heldout_bytes"],
        )
    except CorpusError as error:
        pytest.skip(f"no standard library as text here: {error}")
    if made.info.sha256 != told.sha256:
        made_with, here = campaign().versions["python"], versions()["python"]
        pytest.skip(f"the journal's text is Python {made_with}'s library, and this is {here}")
    return made


def same_machine() -> str | None:
    """Return how this machine differs from the journal's, or None."""
    row, here = campaign(), hardware()
    for what in ("machine", "cpu", "cpus"):
        if row.hardware[what] != here[what]:
            return f"{what} {here[what]}, and the journal's was {row.hardware[what]}"
    if not cpu_multiplies_bf16():  # the journal's CPU did, under the same name
        return "no instructions for bf16"
    torch = versions()["torch"]
    return None if row.versions["torch"] == torch else f"torch {torch}"


def test_a_trial_of_the_journal_gives_its_number_again(corpus: Corpus, tmp_path: Path) -> None:
    """It has learned positions: rotary ones round otherwise since the journal was recorded."""
    learned = [
        (row.config, row.trials[0])
        for row in ROWS
        if isinstance(row, IterationRow) and row.config and row.config.positions == "learned"
    ]
    config, trial = learned[-1]
    row = campaign()
    spec = TrialSpec(
        trial_id=trial.trial_id,
        config=config,
        seed=trial.seed,
        corpus_dir=str(corpus.directory),
        corpus_sha256=corpus.info.sha256,
        budget=row.budget,
        horizon_steps=row.horizon_steps,
        threads=tomllib.loads(row.menu_toml)["campaign"]["threads"],
        limits=Limits(wall_s=100_000),
    )
    with LocalExecutor(allow_unsandboxed=True) as executor:
        again = executor.run(spec, tmp_path / "trial").result
    assert isinstance(again, TrialOk)
    assert (again.params, again.val_tokens) == (trial.result.params, trial.result.val_tokens)
    assert again.val_bpb == pytest.approx(trial.result.val_bpb, abs=NEAR_BPB)
    other = same_machine()
    if other is not None:
        pytest.skip(f"near, and not compared bit for bit: this machine has {other}")
    assert again.val_bpb == trial.result.val_bpb
    assert again.train_loss_last == trial.result.train_loss_last
