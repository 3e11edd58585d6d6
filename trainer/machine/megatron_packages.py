"""Megatron-Core and TransformerEngine on this machine: their versions, and imports before a fork.

Importing this module imports neither of them, nor torch.
"""

import importlib
import os
from importlib.metadata import PackageNotFoundError, version

from trainer.machine import cuda_driver

WORKING = "megatron-core 0.16.1 with transformer-engine 2.20.2 beside torch 2.11.0 (the extra gpu)"
"""Versions that were seen to train together, on an H200 with CUDA 13.0 and Python 3.12."""
_MODULES = ("torch._inductor.compile_fx", "trainer.backends.megatron_gpt")


def installed(package: str) -> str | None:
    """Return the installed version of a package; None if it is absent."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def preload() -> None:
    """Import what Megatron trials would each import for seconds, if that leaves CUDA alone.

    TransformerEngine has started CUDA on import (github.com/NVIDIA/TransformerEngine, issue 872),
    and no fork of a process that did can use it. So a child tries the imports first. Where it
    starts the driver or fails, nothing is imported here, and each trial imports for itself.
    """
    if installed("megatron-core") is None or installed("transformer-engine") is None:
        return
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _import()
            code = int(cuda_driver.is_started())
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1] == 0:
        _import()


def _import() -> None:
    for name in _MODULES:
        importlib.import_module(name)
