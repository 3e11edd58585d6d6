"""The Megatron-Core backend: the same recipe in the framework that the full-size run will use.

Only :meth:`MegatronBackend.build` imports Megatron-Core and TransformerEngine, so a machine that
does not use them neither needs nor loads them (the import takes three seconds). The model itself is
in :mod:`trainer.backends.megatron.gpt`.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import torch

from autoresearch.errors import MachineryError, SpecError
from trainer.backends.coded.functions import refuse_code
from trainer.backends.float8 import check_capability, check_shapes
from trainer.backends.versions import Trio, check_trio
from trainer.spec import Config, Fp8Recipe


class MegatronBackend:
    """The backend that builds :class:`trainer.backends.megatron.gpt.MegatronGPT`."""

    name = "megatron"

    def __init__(self, fp8: Fp8Recipe | None = None) -> None:
        self._fp8 = Fp8Recipe() if fp8 is None else fp8

    def check(self, config: Config, device: torch.device) -> None:
        """Check that this backend can train the config here, without importing Megatron.

        :raises SpecError: if the device is not CUDA, Megatron-Core's layers do not support the
            config, or fp8 is not available for its shapes or on the device.
        :raises MachineryError: if packages are missing or known to be incompatible.
        """
        if device.type != "cuda":
            instead = "bf16 or fp32 with backend torch" if config.precision == "fp8" else "torch"
            raise SpecError(
                f"the megatron backend trains on CUDA devices only, not in {config.precision} on"
                f" {device}; choose {instead}"
            )
        _check_parts(config)
        trio = Trio.installed()
        check_trio(trio)
        if config.precision == "fp8":
            _check_fp8(config, trio, torch.cuda.get_device_capability(device))

    def build(self, config: Config, vocab_size: int, device: torch.device) -> torch.nn.Module:
        """See :class:`trainer.backends.base.Backend`.

        The weights are those that the torch backend draws from the same seed, rounded if they are
        bf16.

        :raises MachineryError: if Megatron-Core or TransformerEngine cannot be imported.
        """
        with warnings.catch_warnings():
            # Megatron-Core warns about optional parts that are not installed and its own defaults.
            warnings.simplefilter("ignore")
            model: torch.nn.Module = _load().build(config, vocab_size, device, fp8=self._fp8)
        return model


def _check_parts(config: Config) -> None:
    """Refuse configs that Megatron-Core's layers do not support.

    Its layers apply norms only to the input of half a block, and add the output unscaled.

    :raises SpecError: if the config norms outputs or scales residual branches.
    """
    refuse_code(config, "the megatron backend")
    if config.norm_place != "pre":
        raise SpecError(
            f"Megatron-Core's layers have no norms for norm_place {config.norm_place}; choose pre,"
            " or backend torch"
        )
    if config.depth_factor != 1.0:
        raise SpecError(
            "Megatron-Core's layers cannot scale residual branches by mup_base_depth / n_layer"
            f" = {config.mup_base_depth} / {config.n_layer}; leave mup_base_depth out, or choose"
            " backend torch"
        )


def _check_fp8(config: Config, trio: Trio, capability: tuple[int, int]) -> None:
    if trio.transformer_engine is None:
        raise SpecError(
            "precision fp8 needs TransformerEngine, which is not installed; install"
            " transformer-engine[pytorch], or choose bf16"
        )
    check_capability(capability)
    # If seq_len is a multiple of 16, a shorter sequence in evaluation can be padded to one.
    check_shapes(config)


def _load() -> Any:
    """Import the module that imports Megatron-Core.

    :raises MachineryError: if that fails.
    """
    try:
        return importlib.import_module("trainer.backends.megatron.gpt")
    except Exception as error:  # TransformerEngine's own libraries raise RuntimeError and OSError
        raise MachineryError(
            f"Megatron-Core cannot be imported ({error}) beside {Trio.installed()}; reinstall it,"
            " or choose backend torch"
        ) from error
