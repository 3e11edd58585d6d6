"""The Megatron-Core backend: the same recipe in the framework that the full-size run will use.

Only :meth:`MegatronBackend.build` imports Megatron-Core and TransformerEngine, so a machine that
does not use them neither needs nor loads them (the import takes three seconds). The model itself is
in :mod:`trainer.backends.megatron_gpt`.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch

from autoresearch.errors import MachineryError, SpecError
from trainer.backends.products import check_fp8
from trainer.machine.megatron_packages import WORKING, installed
from trainer.schema import Config


class MegatronBackend:
    """The backend that builds :class:`trainer.backends.megatron_gpt.MegatronGPT`."""

    name = "megatron"

    def check(self, config: Config, device: torch.device) -> None:
        """Check that this backend can train the config here, without importing Megatron.

        :raises SpecError: if the device is not CUDA, Megatron-Core's layers do not support the
            config, or fp8 is not available for its shapes or on the device.
        :raises MachineryError: if Megatron-Core is missing.
        """
        if device.type != "cuda":
            instead = "bf16 or fp32 with backend torch" if config.precision == "fp8" else "torch"
            raise SpecError(
                f"the megatron backend trains on CUDA devices only, not in {config.precision} on"
                f" {device}; choose {instead}"
            )
        if config.code:
            raise SpecError(
                f"the megatron backend cannot run {', '.join(config.code)}; leave them empty, or"
                " choose backend torch"
            )
        if config.optimizer != "adamw":
            raise SpecError(
                f"the megatron backend trains with adamw only, not with {config.optimizer}, since"
                " Megatron-Core's Muon needs a package that no release brings along; choose"
                " optimizer adamw, or backend torch"
            )
        if config.norm_place != "pre" or config.depth_factor != 1.0:
            raise SpecError(
                "Megatron-Core's layers have norms at their inputs only and add their outputs"
                f" unscaled, and this config has norm_place {config.norm_place} and mup_base_depth"
                f" {config.mup_base_depth}; set pre and none, or choose backend torch"
            )
        if installed("megatron-core") is None:
            raise MachineryError(
                "the megatron backend needs megatron-core, which is not installed; install"
                f" {WORKING}, or choose backend torch"
            )
        if config.precision == "fp8":
            if installed("transformer-engine") is None:
                raise SpecError(
                    "precision fp8 needs TransformerEngine, which is not installed; install"
                    " transformer-engine[pytorch], or choose bf16"
                )
            # If seq_len is a multiple of 16, a shorter sequence in evaluation can be padded to one.
            check_fp8(config, torch.cuda.get_device_capability(device))

    def build(self, config: Config, vocab_size: int, device: torch.device) -> torch.nn.Module:
        """See :class:`trainer.backends.Backend`.

        The weights are those that the torch backend draws from the same seed, rounded if they are
        bf16.

        :raises MachineryError: if Megatron-Core or TransformerEngine cannot be imported.
        """
        with _quiet():
            model: torch.nn.Module = imported().build(config, vocab_size, device)
        return model


def imported() -> ModuleType:
    """Import and return :mod:`trainer.backends.megatron_gpt`.

    :raises MachineryError: if Megatron-Core or TransformerEngine cannot be imported.
    """
    with _quiet():
        try:
            return importlib.import_module("trainer.backends.megatron_gpt")
        except Exception as error:  # TransformerEngine's libraries raise RuntimeError, OSError
            raise MachineryError(
                f"Megatron-Core cannot be imported ({error}) beside torch {torch.__version__};"
                f" install {WORKING}, or choose backend torch"
            ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore Megatron-Core's warnings about parts that are not installed and its own defaults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
