"""A non-finite step is diagnosed by repeating it on torch's own operators."""

from functools import partial
from pathlib import Path

import pytest

from autoresearch.errors import MachineryError
from tests.support import faulty_trainer
from tests.support.corpora import write_corpus
from tests.support.trials import tiny_spec
from trainer.corpus import Corpus
from trainer.executors.local import LocalExecutor
from trainer.schema import Budget, TrialOk

ENTRY = faulty_trainer.ENTRY


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write_corpus(tmp_path_factory.mktemp("kernels") / "corpus")


spec_of = partial(tiny_spec, budget=Budget(amount=6))


@pytest.mark.parametrize("fault", ["norm", "loss"])
def test_a_kernel_that_makes_nan_stops_the_campaign(
    fault: str, executor: LocalExecutor, corpus: Corpus, tmp_path: Path
) -> None:
    trial_dir = faulty_trainer.break_it(tmp_path / "trial", fault)
    with pytest.raises(MachineryError):
        executor.run(spec_of(corpus), trial_dir)
    assert faulty_trainer.attempts(trial_dir) == 2
    assert not (trial_dir / "result.json").exists()


@pytest.mark.slow
def test_a_single_nan_runs_again(executor: LocalExecutor, corpus: Corpus, tmp_path: Path) -> None:
    trial_dir = faulty_trainer.break_it(tmp_path / "trial", "norm", times=1)
    assert isinstance(executor.run(spec_of(corpus), trial_dir).result, TrialOk)
    assert faulty_trainer.attempts(trial_dir) == 2


@pytest.mark.parametrize(
    "steps", [30, pytest.param(1, marks=pytest.mark.slow)], ids=["in training", "in scoring"]
)
def test_a_config_that_diverges_on_kernels_is_to_blame(
    steps: int, executor: LocalExecutor, corpus: Corpus, tmp_path: Path
) -> None:
    recipe = {"lr": 1e38, "lr_warmup": 0, "grad_clip": 1e30}
    trial_dir = faulty_trainer.break_it(tmp_path / "trial", "too high a rate")
    spec = spec_of(corpus, recipe).model_copy(update={"budget": Budget(amount=steps)})
    result = executor.run(spec, trial_dir).result
    assert result.status == "nonfinite"
    assert faulty_trainer.attempts(trial_dir) == 1


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", ["finite norm", "too high a rate"])
def test_a_warm_up_finds_a_kernel_that_gives_wrong_finite_numbers(
    fault: str, precision: str, executor: LocalExecutor, corpus: Corpus, tmp_path: Path
) -> None:
    trial_dir = faulty_trainer.break_it(tmp_path / "trial", fault)
    spec = spec_of(corpus, {"precision": precision}, check_kernels=True)
    if fault != "finite norm":  # the kernels are right
        assert isinstance(executor.run(spec, trial_dir).result, TrialOk)
        return
    with pytest.raises(MachineryError):
        executor.run(spec, trial_dir)
