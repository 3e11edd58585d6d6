"""Trials that train in one process and score in another, which alone may read the held-out text."""

from functools import partial
from pathlib import Path

import pytest

from tests.support.corpora import write_corpus
from tests.support.trials import tiny_spec
from trainer.corpus import Corpus
from trainer.executors.local import LocalExecutor
from trainer.schema import Checkpoint, TrialFailed, TrialOk, TrialSpec


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return write_corpus(tmp_path / "corpus")


spec_for = partial(tiny_spec, scored_apart=True)


def run(executor: LocalExecutor, spec: TrialSpec, directory: Path) -> TrialOk | TrialFailed:
    result = executor.submit(spec, directory).result(240).result
    assert isinstance(result, TrialOk | TrialFailed)
    return result


def test_it_has_the_numbers_of_a_trial_in_one_process(corpus: Corpus, tmp_path: Path) -> None:
    """Weights, averages and checkpoints survive the way between the processes, to the last bit."""
    executor = LocalExecutor()
    try:
        averaged = {
            "average": {"form": "lawa", "steps": 2},
            "checkpoints": (Checkpoint(step=3), Checkpoint()),
        }
        for changes in ({}, averaged):
            found = [
                run(executor, spec_for(corpus, scored_apart=apart, **changes), tmp_path / name)
                for apart, name in ((False, f"whole{len(changes)}"), (True, f"apart{len(changes)}"))
            ]
            whole, apart = found
            assert isinstance(whole, TrialOk) and isinstance(apart, TrialOk)
            assert apart.val_bpb == whole.val_bpb
            assert apart.checkpoints_bpb == whole.checkpoints_bpb
            assert apart.train_loss_last == whole.train_loss_last
            assert apart.params == whole.params
            assert not (tmp_path / f"apart{len(changes)}" / "tmp").exists()
        ended = run(
            executor, spec_for(corpus, {"code.schedule": "return 10.0 + step"}), tmp_path / "failed"
        )
        assert isinstance(ended, TrialFailed) and ended.status == "crash"
        diverged = run(
            executor,
            spec_for(corpus, {"code.aux_loss": "return logits.sum() * math.inf"}),
            tmp_path / "diverged",
        )
        assert isinstance(diverged, TrialFailed) and diverged.status == "nonfinite"
    finally:
        executor.close()


def test_training_cannot_read_the_held_out_text(corpus: Corpus, tmp_path: Path) -> None:
    """The half that trains opens every file of the corpus, and says which it may read."""
    executor = LocalExecutor(entry="tests.support.curious_trainer:run_trial")
    try:
        result = run(executor, spec_for(corpus), tmp_path / "curious")
    finally:
        executor.close()
    assert isinstance(result, TrialFailed)
    assert result.message == "train: meta.json train.bin / score: heldout.bin meta.json train.bin"
