"""Only trials that compile code may write the campaign's cache, which lies apart."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import trainer
from autoresearch.errors import MachineryError, SandboxError
from tests.support import hostile
from tests.support.stub_cuda import StubMachine
from tests.support.trials import on_gpu, trial_spec
from trainer.executors.local import LocalExecutor
from trainer.machine.host import lacking

# --- the cache's place in the sandbox ------------------------------------------------------------


@pytest.fixture(scope="module")
def attacked() -> Iterator[LocalExecutor]:
    with LocalExecutor(entry=hostile.ENTRY, allow_unsandboxed=True) as executor:
        if "UNSANDBOXED" in executor.describe():
            pytest.skip("this kernel cannot confine a trial")
        yield executor


@pytest.mark.slow
def test_only_a_trial_that_makes_code_may_write_the_cache(
    attacked: LocalExecutor, gpu_machine: StubMachine, tmp_path: Path
) -> None:
    cache, corpus = tmp_path / "compiled", tmp_path / "corpus"
    cache.mkdir()
    corpus.mkdir()
    kept = {"compile_cache": str(cache)}
    with LocalExecutor(
        entry=hostile.ENTRY, environ=gpu_machine.environ(), root=gpu_machine.root
    ) as attacked_on_gpu:
        for number, (executor, spec) in enumerate(
            (
                (attacked, trial_spec(corpus, **kept)),
                (attacked_on_gpu, on_gpu(corpus, **kept)),
            )
        ):
            planted = cache / str(number)
            trial_dir = tmp_path / "trials" / str(number)
            executor.run(spec, hostile.arm(trial_dir, hostile.write, path=str(planted)))
            assert planted.exists() == (number == 1)
    # torch on CUDA cannot start without a GPU; this property is what opens the cache to it.
    assert trial_spec(corpus, device="cuda", **kept).code_cache == str(cache)


def test_a_cache_in_a_wrong_place_is_refused(gpu_machine: StubMachine, tmp_path: Path) -> None:
    """One that cannot be made is no crash of the config either."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (tmp_path / "file").touch()
    code = Path(trainer.__file__).parent
    places = (tmp_path / "campaign", tmp_path, corpus, corpus / "compiled", code.parent, code)
    refused = [*((place, SandboxError) for place in places)]
    for number, (cache, error) in enumerate(
        [*refused, (tmp_path / "file" / "compiled", MachineryError)]
    ):
        trials = tmp_path / "campaign" / "trials"
        trial_dir = hostile.arm(trials / str(number), hostile.tell_variables)
        spec = on_gpu(corpus, compile_cache=str(cache))
        with (
            LocalExecutor(
                entry=hostile.ENTRY, environ=gpu_machine.environ(), root=gpu_machine.root
            ) as attacked,
            pytest.raises(error),
        ):
            attacked.run(spec, trial_dir)


# --- what is missing -----------------------------------------------------------------------------


def test_what_compiling_kernels_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (lacking() == "Triton") == (find_spec("triton") is None)
    monkeypatch.setenv("PATH", os.devnull)
    assert lacking() is not None
