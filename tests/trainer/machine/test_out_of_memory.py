"""Recognition of out-of-memory errors, on texts from the trackers of PyTorch, NCCL and Triton."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.configs import config
from tests.support.corpora import write_corpus
from tests.support.trials import trial_spec
from trainer.executors.local import LocalExecutor
from trainer.machine.device import is_out_of_memory
from trainer.schema import Budget, TrialFailed, TrialOk

ALLOCATOR = "NVML_SUCCESS == r INTERNAL ASSERT FAILED at"


def unknown() -> None:
    return None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (MemoryError(), True),
        (OSError(12, "Cannot allocate memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"), True),
        (RuntimeError("unable to mmap 4096 bytes: Cannot allocate memory (12)"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be"), True),
        (RuntimeError("CUDA driver error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (
            torch.distributed.DistBackendError(
                "NCCL error in: ProcessGroupNCCL.cpp:3384, unhandled cuda error\nLast error:\n"
                "Cuda failure 2 'out of memory'"
            ),
            True,
        ),
        (RuntimeError(f'{ALLOCATOR} "/pytorch/c10/cuda/CUDACachingAllocator.cpp":1015'), True),
        (RuntimeError("shape '[3]' is invalid for input of size 4"), False),
        (RuntimeError("out of resource: shared memory, Required: 245760"), False),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (OSError(28, "No space left on device"), False),
        (ValueError("can't allocate memory"), False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_texts(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error, unknown) is expected


def test_what_an_error_was_raised_from_counts() -> None:
    error = RuntimeError("the compiled function failed")
    assert not is_out_of_memory(error, unknown)
    error.__cause__ = torch.OutOfMemoryError("CUDA out of memory")
    assert is_out_of_memory(error, unknown)


@pytest.mark.parametrize(("free_mib", "expected"), [(3, True), (4000, False), (None, False)])
def test_a_failed_handle_is_memory_on_a_full_device(free_mib: int | None, expected: bool) -> None:
    error = RuntimeError(
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
    )
    free_bytes = None if free_mib is None else free_mib << 20
    assert is_out_of_memory(error, lambda: free_bytes) is expected


@pytest.mark.parametrize(
    ("recipe", "limits", "told"),
    [
        # a matrix of 3 PiB
        ({"d_model": 1 << 24, "n_head": 1 << 20}, {}, "out of memory on cpu: "),
        ({"batch_size": 2048}, {"memory_gib": 0.6}, "over the limit of 0.6 GiB"),
    ],
    ids=["refused", "killed"],
)
def test_memory_that_runs_out_is_a_result_and_the_next_trial_is_none_the_worse(
    recipe: dict[str, Any], limits: dict[str, Any], told: str, tmp_path: Path
) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    small = {"n_layer": 1, "n_head": 2, "d_model": 32, "d_ff": 64, "seq_len": 256}
    spec = partial(
        trial_spec, corpus.directory, corpus_sha256=corpus.info.sha256, budget=Budget(amount=3)
    )
    with LocalExecutor(allow_unsandboxed=True) as executor:
        greedy = spec(config=config(**{**small, **recipe}), **limits)
        result = executor.run(greedy, tmp_path / "trials" / "0").result
        assert isinstance(result, TrialFailed)
        assert (result.status, told in result.message) == ("oom", True), result
        assert result.peak_mem_gib is not None
        assert result.peak_mem_gib > limits.get("memory_gib", 0.1)
        modest = spec(config=config(**small, batch_size=2), **limits)
        assert isinstance(executor.run(modest, tmp_path / "trials" / "1").result, TrialOk)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_real_allocation_too_large_is_one() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    assert is_out_of_memory(raised.value, unknown)
