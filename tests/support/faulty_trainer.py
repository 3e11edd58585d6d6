"""The built-in trainer on a machine with a fault, for an executor to run.

:func:`break_it` writes the fault's name into the trial's directory, and :func:`run` is the entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainer.backends.megatron import backend as megatron
from trainer.backends.torch_gpt import TorchBackend
from trainer.spec import Measured, TrialFailed, TrialSpec
from trainer.training import child

ENTRY = "tests.support.faulty_trainer:run"
FAULTS = ("memory cap", "megatron", "transformer engine", "build", "first kernel", "driver")
_FAULT, _ATTEMPTS = "fault.json", "attempts"


def break_it(trial_dir: Path, fault: str, times: int = 9) -> Path:
    """Have the first ``times`` runs of the trial in this directory meet the fault."""
    trial_dir.mkdir(parents=True)
    (trial_dir / _FAULT).write_text(json.dumps([fault, times]))
    return trial_dir


def attempts(trial_dir: Path) -> int:
    """How often the trial has run."""
    return len((trial_dir / _ATTEMPTS).read_bytes())


def run(spec: TrialSpec, trial_dir: Path, *, born: float) -> Measured | TrialFailed:
    """The trial, its fault first."""
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
        torch.set_num_threads = _raising("CUDA error: out of memory")
    elif fault in {"megatron", "transformer engine"}:
        megatron.importlib.import_module = _raising(f"{fault}: cannot map libtransformer.so")
        loads = megatron._load
        TorchBackend.build = lambda *_: loads()  # type: ignore[method-assign]
    elif fault == "build":
        TorchBackend.build = _raising("CUDA error: an illegal instruction")  # type: ignore[method-assign]
    elif fault == "driver":  # it started, and refuses the first context
        child.find_device = _raising("CUDA driver error: unknown error")
    elif fault == "first kernel":
        torch.Tensor.backward = _raising("CUDA error: no kernel image")  # type: ignore[method-assign]
    else:
        real = torch.Tensor.backward
        broken = _raising("CUDA error: misaligned address", after=3, real=real)
        torch.Tensor.backward = broken  # type: ignore[method-assign]
