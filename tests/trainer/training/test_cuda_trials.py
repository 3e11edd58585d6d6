"""Real trials run on a real GPU, confined as in a campaign. Skipped without a GPU."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.support.configs import config
from tests.support.corpora import write_corpus
from trainer.corpus import Corpus
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.machine.host import available_gib
from trainer.memory.estimate import device_limit
from trainer.schema import Budget, CurvePoint, Limits, TrialOk, TrialSpec
from trainer.training.cuda_probe import probe_cuda

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(Layers.detect().landlock_abi < 5, reason="trials would not be confined"),
]

ROOM_GIB = 1.25
"""GPU memory of a trial that must run out of it, without the context and its libraries."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "tiny")


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor() as executor:
        assert executor.describe().startswith("landlock")
        yield executor


def cuda_spec(corpus: Corpus, **changes: Any) -> TrialSpec:
    fields: dict[str, Any] = {
        "trial_id": "gpu",
        "config": config(),
        "seed": 1,
        "corpus_dir": str(corpus.directory),
        "corpus_sha256": corpus.info.sha256,
        "budget": Budget(unit="steps", amount=20),
        "device": "cuda",
        "limits": Limits(wall_s=240, reserve_gib=1),
        **changes,
    }
    return TrialSpec(**fields)


def test_cuda_starts_in_the_sandbox() -> None:
    probe = probe_cuda()
    assert probe.works, probe.said
    assert "cuInit 0, a context, a product" in probe.said


def test_a_trial_end_to_end(executor: LocalExecutor, corpus: Corpus, tmp_path: Path) -> None:
    points: list[CurvePoint] = []
    spec = cuda_spec(corpus)
    result = executor.run(spec, tmp_path / "trial", on_point=points.append).result
    assert isinstance(result, TrialOk), result
    assert result.device == torch.cuda.get_device_name()
    assert result.steps == len(points) == 20
    assert result.train_loss_last < result.train_loss_first
    assert 0 < result.peak_mem_gib <= (result.peak_reserved_gib or 0)


def test_first_losses_are_equal(executor: LocalExecutor, corpus: Corpus, tmp_path: Path) -> None:
    losses = []
    for name in "ab":
        result = executor.run(cuda_spec(corpus), tmp_path / name).result
        assert isinstance(result, TrialOk), result
        losses.append(result.train_loss_first)
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_a_trial_keeps_its_compiled_kernels(
    executor: LocalExecutor, corpus: Corpus, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    cache = tmp_path / "compiled"
    for name in "ab":  # cold, and with the first one's code
        spec = cuda_spec(corpus, compile_cache=str(cache))
        result = executor.run(spec, tmp_path / name).result
        assert isinstance(result, TrialOk), result
    assert any(cache.iterdir())


def test_a_trial_that_runs_out_of_memory(corpus: Corpus, tmp_path: Path) -> None:
    """The trial runs out of memory by design, under a small limit, and the GPU is free again
    afterwards."""
    spec = cuda_spec(corpus, config=config(batch_size=256, seq_len=1024, n_layer=8))
    if device_limit("cuda", reserve_gib=0).is_shared:
        limits = Limits(wall_s=240, reserve_gib=available_gib() - ROOM_GIB)
        spec, share = spec.model_copy(update={"limits": limits}), 1.0
    else:
        share = ROOM_GIB * (1 << 30) / torch.cuda.get_device_properties(0).total_memory
    environ = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": f"per_process_memory_fraction:{share:.6f}"}
    with LocalExecutor(environ=environ) as executor:
        result = executor.run(spec, tmp_path / "large").result
        assert result.status == "oom", result
        small = executor.run(cuda_spec(corpus), tmp_path / "small").result
    assert isinstance(small, TrialOk), small


def test_a_trial_killed_mid_step(executor: LocalExecutor, corpus: Corpus, tmp_path: Path) -> None:
    def kill(point: CurvePoint) -> None:
        if point.step == 3:
            for child in psutil.Process(executor.lane.server.pid).children():
                child.send_signal(signal.SIGKILL)

    spec = cuda_spec(corpus, budget=Budget(unit="steps", amount=100_000))
    result = executor.run(spec, tmp_path / "killed", on_point=kill).result
    assert result.status == "killed"
    after = executor.run(cuda_spec(corpus), tmp_path / "after").result
    assert isinstance(after, TrialOk), after
