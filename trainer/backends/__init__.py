"""Where models come from: one module per backend, chosen here."""

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
"""What makes each, of the options in a TrialSpec; a name that a spec may have is here."""


def choose_backend(
    name: BackendName, fp8: Fp8Recipe | None = None, *, compile: bool = False
) -> Backend:
    """The backend a TrialSpec names; only torch's compiles.

    :raises SpecError: where there is no such backend.
    """
    if name not in BACKENDS:
        raise SpecError(f"there is no backend {name!r}; choose one of {', '.join(BACKENDS)}")
    return BACKENDS[name](fp8 or Fp8Recipe(), compile)
