"""Kernels agree with fp64 when interpreted, compile without a GPU, and run on one."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from tests.support.kernels import Call, assert_same, calls, fp32_heads
from tests.support.places import ROOT
from trainer.backends.kernels import operations, usable_on

needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton has no wheel for this machine"
)


def in_another_process(tmp_path: Path, *arguments: str, **environ: str) -> str:
    """Return the output of a Python command."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@needs_triton
def test_triton_kernels_interpreted_compute_what_is_written_out(tmp_path: Path) -> None:
    pytest_options = ("-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts=")
    file = "tests/trainer/backends/kernels/interpreted.py"
    said = in_another_process(
        tmp_path, "-m", "pytest", *pytest_options, "--import-mode=importlib", file,
        TRITON_INTERPRET="1",
    )  # fmt: skip
    assert f"{len(list(calls())) + len(fp32_heads()) + 4} passed" in said


@needs_triton
@pytest.mark.slow
def test_triton_kernels_compile_for_an_h200_and_a_gb10_without_either(tmp_path: Path) -> None:
    said = in_another_process(tmp_path, "-m", "tests.trainer.backends.kernels.cubins", "90", "121")
    lines = [line.split() for line in said.splitlines()]
    compiled = {(target, kernel) for target, _, kernel, *_ in lines}
    kernels = {"_norm", "_norm_backward", "_activate", "_activate_backward"}
    kernels |= {"_heads", "_heads_backward", "_loss_and_gradient", "_exact_nll"}
    assert compiled == {(target, name) for target in ("sm_90", "sm_121") for name in kernels}
    assert all(int(size) > 1000 for _, size, *_ in lines)
    # One form for each dtype and flag, independent of the shape.
    assert len(lines) == 2 * len({tuple(line[2:]) for line in lines})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("call", list(calls()), ids=lambda call: call.name)
def test_a_gpu_computes_what_is_written_out(call: Call) -> None:
    assert_same(call.of(operations, "cuda"), call.of(operations))


# --- written-out forms; test_parts.py has the others, in whole models -----------------------------


def test_a_losss_gradient_is_autograds_and_0_behind_the_vocabulary() -> None:
    generator = torch.Generator().manual_seed(68)
    logits_CW = torch.randn(4, 64, generator=generator, dtype=torch.float64).requires_grad_()
    targets_C = torch.tensor([0, 36, 5, 5])
    loss_C = functional.cross_entropy(logits_CW[:, :37], targets_C, reduction="none")
    (wanted_CW,) = torch.autograd.grad(loss_C.sum(), logits_CW)
    given_CW = logits_CW.detach().clone()
    given_CW[:, 37:] = torch.nan
    torch.testing.assert_close(operations.exact_nll(given_CW, targets_C, 37), loss_C)
    got_C = operations.loss_and_gradient_(given_CW, targets_C, 37, 0.25)
    torch.testing.assert_close(got_C, loss_C)
    torch.testing.assert_close(given_CW, 0.25 * wanted_CW)


def test_only_a_gpu_runs_on_kernels() -> None:
    assert not usable_on(torch.device("cpu"))
    assert not usable_on(torch.device("meta"))
