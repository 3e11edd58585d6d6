"""Where models come from: one module per backend, chosen here."""

from __future__ import annotations

from trainer.backends.base import Backend
from trainer.backends.megatron.backend import MegatronBackend
from trainer.backends.torch_gpt import TorchBackend
from trainer.spec import BackendName, Fp8Recipe

__all__ = ["Backend", "choose_backend"]


def choose_backend(
    name: BackendName, fp8: Fp8Recipe | None = None, *, compile: bool = False
) -> Backend:
    """The backend a TrialSpec names; only torch's compiles."""
    match name:
        case "torch":
            return TorchBackend(compile=compile)
        case "megatron":
            return MegatronBackend(fp8)
        case "megatron-fp32":
            return MegatronBackend(fp8, weights="fp32")
