"""Compiled blocks agree with uncompiled ones, and a trial reuses its predecessors' code."""

import os
import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import trainer
from autoresearch.errors import MachineryError, SandboxError, SpecError
from tests.support import hostile
from tests.support.configs import config
from tests.support.corpora import write_corpus
from tests.support.stub_cuda import StubMachine
from tests.support.trials import on_gpu, tiny_spec, trial_spec
from trainer.backends.torch_gpt import TorchBackend
from trainer.executors.local import LocalExecutor
from trainer.machine.host import lacking
from trainer.spec import Budget, TrialOk, TrialSpec

CPU = torch.device("cpu")
TINY = {"n_layer": 3, "n_head": 2, "d_model": 16, "d_ff": 32, "batch_size": 4, "seq_len": 16}
MISSING = lacking("cpu")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's compiler warns about itself

needs_compiler = pytest.mark.skipif(MISSING is not None, reason=f"no {MISSING}")


@pytest.fixture
def fresh_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield Dynamo's counters, with nothing compiled and the cache in the test's own directory."""
    dynamo_utils = pytest.importorskip("torch._dynamo.utils")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    torch.compiler.reset()
    dynamo_utils.counters.clear()
    yield dynamo_utils.counters
    torch.compiler.reset()


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "tolerance", "by"),
    [
        (
            {"precision": "bf16", "norm": "rmsnorm", "positions": "rotary", "activation": "swiglu"}
            | {"n_kv_head": 1},
            5e-2,
            "inductor",
        ),
        ({"precision": "fp8"}, 0.2, "aot_eager"),  # its graph; code for it needs a GPU
    ],
    ids=["bf16", "fp8"],
)
def test_compiled_blocks_are_the_blocks_and_all_layers_share_one(
    recipe: dict[str, Any],
    tolerance: float,
    by: str,
    fresh_compiler: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=by))
    stream_BT = torch.randint(257, (4, 17), generator=torch.Generator().manual_seed(1))
    results = []
    for compile in (False, True):
        torch.manual_seed(0)
        backend = TorchBackend(compile=compile)
        model = backend.build(config(**{**TINY, **recipe}), 257, CPU)
        loss = model(stream_BT[:, :-1], stream_BT[:, 1:])
        loss.backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        held_out = model.eval()(stream_BT[:, :6], stream_BT[:, 1:7])
        results.append((loss.item(), gradients, held_out))
    (loss_a, written, scores_a), (loss_b, compiled, scores_b) = results
    assert fresh_compiler["stats"]["unique_graphs"] == 1, "one block"
    assert loss_b == pytest.approx(loss_a, rel=1e-3)
    assert torch.equal(scores_a, scores_b), "the ruler runs as written"
    assert written.keys() == compiled.keys()
    for name, gradient in written.items():
        error = (compiled[name] - gradient).abs().max() / gradient.abs().max()
        assert error < tolerance, name


@needs_compiler
@pytest.mark.slow
def test_a_trial_in_the_sandbox_finds_what_the_one_before_compiled(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    cache = tmp_path / "campaign" / "compiled"

    def spec(**changes: Any) -> TrialSpec:
        recipe = {**TINY, "precision": "fp32"}
        return tiny_spec(corpus, recipe, budget=Budget(amount=3), **changes)

    def code() -> set[Path]:
        return {path for path in cache.rglob("*") if path.suffix in {".so", ".cpp", ".py"}}

    with LocalExecutor(allow_unsandboxed=True) as executor:
        trials = tmp_path / "campaign" / "trials"
        plain = executor.run(spec(), trials / "plain").result
        assert isinstance(plain, TrialOk)
        assert not cache.exists()
        compiling = spec(compile=True, compile_cache=str(cache))
        first = executor.run(compiling, trials / "first").result
        assert isinstance(first, TrialOk), (trials / "first" / "trainer.log").read_text()
        made = code()
        second = executor.run(compiling, trials / "second").result
        assert isinstance(second, TrialOk)
    assert any(path.suffix == ".so" for path in made)
    assert code() == made, "the second compiled nothing"
    assert second.val_bpb == first.val_bpb
    assert first.train_loss_first == pytest.approx(plain.train_loss_first, rel=1e-5)
    assert first.val_bpb == pytest.approx(plain.val_bpb, rel=1e-4)
    left = {path.name for path in (trials / "second").iterdir()}
    assert left == {"spec.json", "trainer.log", "curve.jsonl", "result.json"}


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
                (attacked, trial_spec(corpus, compile=True, **kept)),
            )
        ):
            planted = cache / str(number)
            trial_dir = tmp_path / "trials" / str(number)
            executor.run(spec, hostile.arm(trial_dir, hostile.write, path=str(planted)))
            assert planted.exists() == (number == 2)
    # torch on CUDA cannot start without a GPU; this property is what opens the cache to it.
    assert trial_spec(corpus, device="cuda", **kept).code_cache == str(cache)


def test_a_cache_in_a_wrong_place_is_refused(attacked: LocalExecutor, tmp_path: Path) -> None:
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
        spec = trial_spec(corpus, compile=True, compile_cache=str(cache))
        with pytest.raises(error):
            attacked.run(spec, trial_dir)


# --- refusals ------------------------------------------------------------------------------------


def test_without_a_compiler_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(MachineryError):
        TorchBackend(compile=True).check(config(), CPU)
    TorchBackend().check(config(), CPU)


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="clang++ is what counts there")
def test_only_inductors_compilers_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "clang++"
    other.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert lacking("cpu") == "a compiler (g++)"
    other.rename(tmp_path / "g++")
    assert lacking("cpu") is None


def test_a_gpu_needs_triton() -> None:
    assert (lacking("cuda") == "Triton") == (find_spec("triton") is None)


def test_only_the_torch_backend_compiles() -> None:
    with pytest.raises(ValueError, match="compile is for the torch backend, not megatron"):
        trial_spec(compile=True, backend="megatron")
    with pytest.raises(SpecError):
        TorchBackend(compile=True).check(config(precision="fp8"), CPU)
