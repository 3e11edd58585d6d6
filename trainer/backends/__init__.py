"""Backends, which build models: one module for each, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable

from autoresearch.errors import SpecError
from trainer.backends.base import Backend
from trainer.backends.megatron.backend import MegatronBackend
from trainer.backends.torch_gpt import TorchBackend
from trainer.spec import BackendName, Fp8Recipe

__all__ = ["BACKENDS", "Backend", "choose_backend"]

BACKENDS: dict[BackendName, Callable[[Fp8Recipe, bool], Backend]] = {
    "torch": lambda fp8, compile: TorchBackend(compile=compile),
    "megatron": lambda fp8, compile: MegatronBackend(fp8),
}
"""Functions that create each backend from the options in a TrialSpec, by every allowed name."""


def choose_backend(
    name: BackendName, fp8: Fp8Recipe | None = None, *, compile: bool = False
) -> Backend:
    """Return the backend that a TrialSpec names; only the torch backend compiles.

    :raises SpecError: if there is no such backend.
    """
    if name not in BACKENDS:
        raise SpecError(f"there is no backend {name!r}; choose one of {', '.join(BACKENDS)}")
    return BACKENDS[name](fp8 or Fp8Recipe(), compile)
