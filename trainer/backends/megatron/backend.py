"""The Megatron-Core backend: the same recipe in the framework that the full-size run will use.

Only :meth:`MegatronBackend.build` imports Megatron-Core and TransformerEngine, so a machine that
does not use them neither needs nor loads them (the import takes three seconds). The model itself is
in :mod:`trainer.backends.megatron.gpt`.

torch, Megatron-Core and TransformerEngine are released separately, and incompatible versions fail
at run time, deep inside a first step. So this module checks them together, by the packages'
metadata, without importing them.
"""

from __future__ import annotations

import importlib
import re
import warnings
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from autoresearch.errors import MachineryError, SpecError
from trainer.backends.coded import refuse_code
from trainer.backends.products import check_capability, check_shapes
from trainer.spec import Config, Fp8Recipe

Release = tuple[int, int]
"""Major and minor version; both packages break and fix things between minor versions."""

OLDEST_MEGATRON: Release = (0, 16)
WORKING_TRIO = "megatron-core 0.16.1 with transformer-engine 2.11"
"""Versions that work together, within the range of megatron-core 0.16.1's own metadata (at least
2.9, below 2.12). They run on Python 3.11, which 0.17 and later do not."""


@dataclass(frozen=True, slots=True)
class Trio:
    """The installed versions as their packages state them; None if a package is absent."""

    torch: str | None
    megatron_core: str | None
    transformer_engine: str | None

    @classmethod
    def installed(cls) -> Trio:
        """Return the versions installed in this Python."""
        return cls(
            torch=_version("torch"),
            megatron_core=_version("megatron-core"),
            transformer_engine=_version("transformer-engine"),
        )

    def __str__(self) -> str:
        engine = self.transformer_engine
        return f"torch {self.torch}, megatron-core {self.megatron_core}, " + (
            "no transformer-engine" if engine is None else f"transformer-engine {engine}"
        )


def check_trio(trio: Trio) -> None:
    """Refuse versions that are missing or known not to work; accept untried pairs.

    :raises MachineryError: if they do not work; it names versions that do.
    """
    if trio.megatron_core is None:
        raise MachineryError(
            "the megatron backend needs megatron-core, which is not installed; install"
            f" {WORKING_TRIO}, or choose backend torch"
        )
    megatron = _release(trio.megatron_core)
    if megatron < OLDEST_MEGATRON:
        raise MachineryError(
            f"megatron-core {trio.megatron_core} is older than any the megatron backend was written"
            f" for; install {WORKING_TRIO}"
        )
    if trio.transformer_engine is None:
        return
    # 0.17 passes retain_pinned_cpu_buffers to every TransformerEngine from 2.5 on, even if it does
    # not offload; 2.10 is the first to accept it, and 0.18 checks the version again.
    if megatron == (0, 17) and (2, 5) <= _release(trio.transformer_engine) < (2, 10):
        raise MachineryError(
            f"megatron-core {trio.megatron_core} does not work with transformer-engine"
            f" {trio.transformer_engine} (its get_cpu_offload_context() gets an argument it does"
            " not know); install megatron-core 0.17 with transformer-engine 2.14, or"
            f" {WORKING_TRIO}"
        )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _release(text: str) -> Release:
    """Return major and minor: (0, 17) for ``0.17.0rc0`` and (2, 14) for ``2.14.0+cu13``."""
    numbers = re.match(r"(\d+)\.(\d+)", text)
    if numbers is None:
        raise MachineryError(f"a version of {text!r} cannot be read; reinstall with {WORKING_TRIO}")
    return int(numbers[1]), int(numbers[2])


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
        refuse_code(config, "the megatron backend")
        # Megatron-Core's layers apply norms only to the input of half a block, and add the output
        # unscaled.
        if config.norm_place != "pre":
            raise SpecError(
                f"Megatron-Core's layers have no norms for norm_place {config.norm_place}; choose"
                " pre, or backend torch"
            )
        if config.depth_factor != 1.0:
            raise SpecError(
                "Megatron-Core's layers cannot scale residual branches by mup_base_depth / n_layer"
                f" = {config.mup_base_depth} / {config.n_layer}; leave mup_base_depth out, or"
                " choose backend torch"
            )
        trio = Trio.installed()
        check_trio(trio)
        if config.precision == "fp8":
            _check_fp8(config, trio, torch.cuda.get_device_capability(device))

    def build(self, config: Config, vocab_size: int, device: torch.device) -> torch.nn.Module:
        """See :class:`trainer.backends.Backend`.

        The weights are those that the torch backend draws from the same seed, rounded if they are
        bf16.

        :raises MachineryError: if Megatron-Core or TransformerEngine cannot be imported.
        """
        with warnings.catch_warnings():
            # Megatron-Core warns about optional parts that are not installed and its own defaults.
            warnings.simplefilter("ignore")
            model: torch.nn.Module = _load().build(config, vocab_size, device, fp8=self._fp8)
        return model


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
