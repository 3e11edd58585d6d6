"""Compile a GPU's kernels before the first step, and tell a compiler's failure from a config's.

Triton compiles each of :mod:`trainer.backends.kernels` at its first call, and Megatron-Core its
fusions through torch.compile. :attr:`trainer.schema.TrialSpec.compile_cache` keeps the code, which
a later trial loads.

Compilation uses one thread and one process. Inductor's pool of compile workers needs POSIX
semaphores, and so /dev/shm, which a trial may not write
(:func:`trainer.machine.environment.allowed_environment` turns the pool off).

Before a lookup of compiled code, torch hashes its own sources and Triton the 200 MB of its library.
That takes about 0.7 s of processor time in every process that compiles. Both remember the result,
so the fork server calls :func:`compute_keys` before it forks (:mod:`trainer.isolation.forkserver`).
Neither key may touch a device, and neither does: a process that has touched CUDA cannot be forked.
"""

import importlib
import subprocess
import sys
from importlib.util import find_spec

import torch
from torch import Tensor, nn

FEW_TOKENS = 16
_COMPILER_ERRORS = (
    ("torch._dynamo.exc", "TorchDynamoException"),
    ("triton.errors", "TritonError"),
)
"""Modules, and the base class in each of all its compiler's errors."""


def load_kernels(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Compile the kernels that the model runs on, and leave the model unchanged.

    Otherwise the first step would compile them, in training time. A budget in seconds would then
    buy fewer steps if nothing was cached. For scoring a few tokens are enough, since kernels are
    not compiled for a shape. For training it takes a whole step, since libraries plan products by
    their shape.
    """
    tokens_BT, targets_BT = batch
    model.eval()
    with torch.no_grad():  # the evaluation protocol's loss is a separate kernel
        model(tokens_BT[:1, :FEW_TOKENS], targets_BT[:1, :FEW_TOKENS])
    model.train()
    model(*batch).backward()
    model.zero_grad()
    if batch[0].is_cuda:
        torch.cuda.synchronize(batch[0].device)
        torch.cuda.empty_cache()  # else the optimizer's state would split blocks that steps need


def is_compiler_failure(error: BaseException) -> bool:
    """Return whether the error is a failure of tracing or compiling, not of a config.

    It may be torch's, Triton's or that of a program that they call (ptxas, a C compiler).
    """
    if isinstance(error, subprocess.CalledProcessError):
        return True
    for module, name in _COMPILER_ERRORS:
        loaded = sys.modules.get(module)  # None if nothing was compiled
        if loaded is not None and isinstance(error, getattr(loaded, name)):
            return True
    return False


TRITON_KEYS = ("triton.runtime.cache", "triton.compiler.compiler")
"""Modules that define ``triton_key``, in newer versions and older ones."""


def compute_keys() -> None:
    """Compute Triton's key if it is installed, and torch's if its compiler is imported.

    Versions without a key's function compute the key when needed.
    """
    keys = [(sys.modules.get("torch._inductor.codecache"), "torch_key")]
    if find_spec("triton") is not None:
        keys += [(importlib.import_module(name), "triton_key") for name in TRITON_KEYS]
    for module, name in keys:
        getattr(module, name, lambda: None)()
