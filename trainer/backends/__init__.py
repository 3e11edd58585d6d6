"""Where models come from: one module per backend, chosen here."""

from __future__ import annotations

from typing import Literal

from trainer.backends.base import Backend
from trainer.backends.torch_gpt import TorchBackend

__all__ = ["Backend", "choose_backend"]


def choose_backend(name: Literal["torch"]) -> Backend:
    """The backend a TrialSpec names."""
    return {"torch": TorchBackend}[name]()
