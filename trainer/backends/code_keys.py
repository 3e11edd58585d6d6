"""Keys of the compilers' caches, computed once for all trials.

torch hashes its own sources and Triton the 200 MB of its library before either looks up what was
compiled: some 0.7 s of processor time in every process that compiles. Both remember the result, so
the fork server computes it before it forks (:mod:`trainer.isolation.forkserver`). Neither key asks
a device for anything, and neither must: a process that has touched CUDA cannot be forked."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec

TRITON_KEYS = ("triton.runtime.cache", "triton.compiler.compiler")
"""Where ``triton_key`` is, in newer versions and older ones."""


def compute() -> None:
    """Compute Triton's key where it is installed, and torch's where its compiler is imported."""
    if find_spec("triton") is not None:
        for name in TRITON_KEYS:
            _call(importlib.import_module(name), "triton_key")
    inductor = sys.modules.get("torch._inductor.codecache")
    if inductor is not None:
        _call(inductor, "torch_key")


def _call(module: object, name: str) -> None:
    """Where a version has it; one that has not computes its key when it wants it."""
    key: Callable[[], object] | None = getattr(module, name, None)
    if key is not None:
        key()
