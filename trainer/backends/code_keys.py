"""Compute the keys of the compilers' caches once for all trials.

Before a lookup of compiled code, torch hashes its own sources and Triton the 200 MB of its library.
That takes about 0.7 s of processor time in every process that compiles. Both remember the result,
so the fork server computes it before it forks (:mod:`trainer.isolation.forkserver`). Neither key
may touch a device, and neither does: a process that has touched CUDA cannot be forked.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec

TRITON_KEYS = ("triton.runtime.cache", "triton.compiler.compiler")
"""Modules that define ``triton_key``, in newer versions and older ones."""


def compute() -> None:
    """Compute Triton's key if it is installed, and torch's if its compiler is imported."""
    if find_spec("triton") is not None:
        for name in TRITON_KEYS:
            _call(importlib.import_module(name), "triton_key")
    inductor = sys.modules.get("torch._inductor.codecache")
    if inductor is not None:
        _call(inductor, "torch_key")


def _call(module: object, name: str) -> None:
    """Call a module's key function, if its version has one; others compute the key when needed."""
    key: Callable[[], object] | None = getattr(module, name, None)
    if key is not None:
        key()
