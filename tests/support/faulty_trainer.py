"""Run the built-in trainer on a machine with a fault, for an executor.

:func:`break_it` writes the fault's name into the trial's directory, and :func:`run` is the entry.
"""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from trainer.backends.kernels import operations
from trainer.backends.torch_gpt import TorchBackend
from trainer.schema import Measured, TrialFailed, TrialSpec
from trainer.training import child, running

ENTRY = "tests.support.faulty_trainer:run"
FAULTS = ("memory cap", "build", "first kernel", "driver")
BAD_KERNELS = ("norm", "loss", "finite norm")
"""Kernels that return NaN from the third step on; ``finite norm`` gives wrong finite numbers."""
_FAULT, _ATTEMPTS = "fault.json", "attempts"


def break_it(trial_dir: Path, fault: str, times: int = 9) -> Path:
    """Make the first ``times`` runs of the trial in this directory meet the fault."""
    trial_dir.mkdir(parents=True)
    (trial_dir / _FAULT).write_text(json.dumps([fault, times]))
    return trial_dir


def attempts(trial_dir: Path) -> int:
    """Return how many times the trial has run."""
    return len((trial_dir / _ATTEMPTS).read_bytes())


def run(spec: TrialSpec, trial_dir: Path, *, born: float) -> Measured | TrialFailed:
    """Run the trial, after its fault."""
    with (trial_dir / _ATTEMPTS).open("ab") as file:
        file.write(b".")
    fault, times = json.loads((trial_dir / _FAULT).read_text())
    if attempts(trial_dir) <= times:
        _inject(fault)
    return child.run_trial(spec, trial_dir, born=born)


def _raising(text: str, after: int = 0, real: Callable[..., Any] | None = None) -> Any:
    calls = 0

    def broken(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if real is not None and calls <= after:
            return real(*args, **kwargs)
        raise RuntimeError(text)

    return broken


def _inject(fault: str) -> None:
    if fault == "memory cap":  # as cudaMemGetInfo has failed on a GB10
        _pretend_to_have_a_gpu()
        torch.cuda.set_per_process_memory_fraction = _cap_that_fails
    elif fault == "build":
        TorchBackend.build = _raising("CUDA error: an illegal instruction")  # type: ignore[method-assign]
    elif fault == "driver":  # the driver started, and refuses the first context
        running.find_device = _raising("CUDA driver error: unknown error")
    elif fault in BAD_KERNELS:
        _break_kernel(fault)
    elif fault == "too high a rate":
        _run_on_kernels()
    elif fault == "first kernel":
        torch.Tensor.backward = _raising("CUDA error: no kernel image")  # type: ignore[method-assign]
    else:
        real = torch.Tensor.backward
        broken = _raising("CUDA error: misaligned address", after=3, real=real)
        torch.Tensor.backward = broken  # type: ignore[method-assign]


def _pretend_to_have_a_gpu() -> None:
    """Simulate a GPU that shares the machine's memory, for the checks before the model is built."""
    running.find_device = lambda _name: torch.device("cuda", 0)
    torch.cuda.set_device = lambda _device: None  # type: ignore[misc, assignment]
    gpu = SimpleNamespace(is_integrated=True, total_memory=1 << 37)
    torch.cuda.get_device_properties = lambda _device: gpu  # type: ignore[assignment, return-value]


def _cap_that_fails(*_: Any) -> None:
    cudnn = "on" if torch.backends.cuda.cudnn_sdp_enabled() else "off"
    raise RuntimeError(f"CUDA error: out of memory (cuDNN's attention is {cudnn})")


def _run_on_kernels() -> None:
    """Run models on the kernels' code path."""
    running.choose_backend = lambda *_: TorchBackend(kernels=True)


def _nan_from(call: int, real: Callable[..., Any], spoils: Callable[[Any, Any], None]) -> Any:
    calls = 0

    def broken(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        result = real(*args, **kwargs)
        if calls >= call:
            spoils(args, result)
        return result

    return broken


def _break_kernel(name: str) -> None:
    """Break one kernel that the one-block model of tests/trainer/training uses in step 3."""
    _run_on_kernels()
    made = operations
    if name == "finite norm":
        made.norm_backward = _nan_from(1, made.norm_backward, lambda _, both: both[0].mul_(-1.0))
    elif name == "norm":
        made.norm_backward = _nan_from(
            9, made.norm_backward, lambda _, both: both[1].fill_(torch.nan)
        )
    else:
        made.loss_and_gradient_ = _nan_from(
            3, made.loss_and_gradient_, lambda args, _: args[0].fill_(torch.nan)
        )
