"""Queries about a GPU, for a process that must not hold a context on it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autoresearch.errors import MachineryError, SpecError
from autoresearch.values import Frozen
from tests.support.configs import config
from tests.support.stub_cuda import STARTED, build_stub
from trainer.machine.throwaway_process import NoAnswer, ask
from trainer.training.readiness import check_elsewhere, check_trainable


class Nothing(Frozen):
    """Answer that no process gives."""

    never: int


@pytest.mark.slow
def test_a_verdict_and_whose_fault_it_is_cross_the_process() -> None:
    check_elsewhere(config(), "torch", "cpu", compile=False)
    with pytest.raises(SpecError):
        check_elsewhere(config(precision="fp8"), "torch", "cpu", compile=False)
    with pytest.raises(MachineryError):
        check_elsewhere(config(), "torch", "abacus", compile=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_about_a_gpu_another_process_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calling process's own CUDA state therefore does not matter."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("asked here"))
    with pytest.raises(MachineryError):
        check_trainable(config(), "torch", "cuda")


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_driver_that_fails_is_asked_for_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In all of these cases torch only says that there is no device."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_stub(tmp_path)))
    monkeypatch.setenv("CUDA_STUB_ENDS", "803")
    with pytest.raises(MachineryError, match="cuInit returned 803"):
        check_trainable(config(), "torch", "cuda")
    monkeypatch.setenv("CUDA_STUB_ENDS", "0")
    with pytest.raises(MachineryError, match=STARTED):
        check_trainable(config(), "torch", "cuda")


def test_a_process_that_says_nothing_is_quoted_or_given_up() -> None:
    with pytest.raises(NoAnswer):
        ask(Nothing, "trainer.nonesuch", patience_s=60)
    with pytest.raises(NoAnswer):
        ask(Nothing, "trainer.machine.gpu", "memory", "cuda", patience_s=0.001)
