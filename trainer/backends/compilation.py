"""Regional compilation: one block, by ``torch.compile``, and not the whole model; and the loss,
where that is not a kernel of :mod:`trainer.backends.kernels`.

A model of 24 equal blocks then compiles one of them, and all share its code: Dynamo guards on what
a block is and not on which. Shapes are fixed, since a trial has one. Only training is compiled:
the ruler runs the same operators for every campaign, and its last window is shorter.

What was compiled is kept in :attr:`trainer.spec.TrialSpec.compile_cache`. A later trial of the
same shapes still traces (Dynamo keeps nothing), and then loads what it would have compiled; a
config of other shapes compiles anew. Whether 60 steps repay that is not yet measured on any GPU.

One thread, one process: Inductor's pool of compile workers needs POSIX semaphores, and so /dev/shm,
which a trial may not write (:func:`trainer.machine.environment.allowed_environment` turns the pool
off)."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from autoresearch.errors import MachineryError

FEW_TOKENS = 16
_COMPILER_ERRORS = (
    ("torch._dynamo.exc", "TorchDynamoException"),
    ("triton.errors", "TritonError"),
)
"""Modules, and the class in each that all its compiler's errors are."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def compiled(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """``function`` in one piece for the shapes it is called with.

    A part that cannot be compiled is an error and no silent fallback: the same config always trains
    by the same code.
    """
    settings: Any = importlib.import_module("torch._inductor.config")
    if hasattr(settings, "cpp_cache_precompile_headers"):
        # Their place was chosen when Inductor was imported, and is not the compile cache.
        settings.cpp_cache_precompile_headers = False
    return torch.compile(function, dynamic=False, fullgraph=True)


def compile_ahead(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Compile what training on batches of this shape will call, and leave the model as it was.

    Else the first step would, on the training's clock, and a budget in seconds would buy fewer
    steps where nothing was cached.
    """
    model.train()
    model(*batch).backward()
    model.zero_grad()
    load_update(model)
    if batch[0].is_cuda:
        torch.cuda.synchronize(batch[0].device)
        torch.cuda.empty_cache()  # else the optimizer's state would split what a step needs


def load_kernels(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """The same where the blocks run on kernels. Scoring needs a few tokens, since kernels are
    compiled for no shape; training a whole step, since libraries plan products by their shape."""
    tokens_BT, targets_BT = batch
    model.eval()
    with torch.no_grad():  # the ruler's loss is a kernel of its own
        model(tokens_BT[:1, :FEW_TOKENS], targets_BT[:1, :FEW_TOKENS])
    compile_ahead(model, batch)


def load_update(model: nn.Module) -> None:
    """Compile the update that writes a parameter's copy, on one that it is told to leave alone."""
    for parameter, weight in getattr(model, "copies", {}).items():
        operations = importlib.import_module("trainer.backends.kernels.operations")
        scalar = torch.ones((), device=parameter.device)
        with torch.no_grad():
            operations.adamw_(
                *[parameter.detach()] * 4,
                weight.storage,
                scalar,
                scalar,
                step=1,
                lr=0.0,
                betas=(0.9, 0.9),
                weight_decay=0.0,
            )
        return


def check_compiler(device: torch.device) -> None:
    """:raises MachineryError: naming what compiling for ``device`` lacks on this machine."""
    missing = missing_for(device)
    if missing is not None:
        raise MachineryError(
            f"compile needs {missing} for {device}, which this machine does not have; install it,"
            " or go without compile"
        )


def is_compiler_failure(error: BaseException) -> bool:
    """Whether tracing or compiling failed, by torch, by Triton or by a program that one of them
    calls (ptxas, a C compiler), which says nothing about a config."""
    if isinstance(error, subprocess.CalledProcessError):
        return True
    for module, name in _COMPILER_ERRORS:
        loaded = sys.modules.get(module)  # where nothing was compiled it is not
        if loaded is not None and isinstance(error, getattr(loaded, name)):
            return True
    return False


def missing_for(device: torch.device) -> str | None:
    """What compiling for ``device`` lacks here; None where nothing is missing.

    Triton, for GPUs, compiles its launchers with a C compiler against Python's headers; Inductor's
    code for a CPU is C++. The names are those that the two look for: a trial's environment has no
    CC or CXX to name another.
    """
    if device.type == "cuda":
        if find_spec("triton") is None:
            return "Triton"
        compilers = ["gcc", "clang"]
    else:
        compilers = ["clang++" if sys.platform == "darwin" else "g++"]
    if not any(shutil.which(name) for name in compilers):
        return f"a compiler ({' or '.join(compilers)})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's headers (python3-dev)"
    return None
