"""Check that the installed torch, Megatron-Core and TransformerEngine are compatible.

They are released separately, and incompatible versions fail at run time, deep inside a first step.
So this module checks them together, by the packages' metadata, without importing them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from autoresearch.errors import MachineryError

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


@dataclass(frozen=True, slots=True)
class BrokenPair:
    """A range of Megatron-Core that fails with a range of TransformerEngine."""

    megatron: tuple[Release, Release]
    """The first release that fails, and the first later one that does not."""
    engine: tuple[Release, Release]
    why: str
    instead: str


BROKEN_PAIRS = (
    BrokenPair(
        megatron=((0, 17), (0, 18)),
        engine=((2, 5), (2, 10)),
        # 0.17 passes retain_pinned_cpu_buffers to every TransformerEngine from 2.5 on, even if it
        # does not offload; 2.10 is the first to accept it, and 0.18 checks the version again.
        why="its get_cpu_offload_context() gets an argument it does not know",
        instead="megatron-core 0.17 with transformer-engine 2.14, or " + WORKING_TRIO,
    ),
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
    engine = _release(trio.transformer_engine)
    for broken in BROKEN_PAIRS:
        if _within(megatron, broken.megatron) and _within(engine, broken.engine):
            raise MachineryError(
                f"megatron-core {trio.megatron_core} does not work with transformer-engine"
                f" {trio.transformer_engine} ({broken.why}); install {broken.instead}"
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


def _within(release: Release, bounds: tuple[Release, Release]) -> bool:
    return bounds[0] <= release < bounds[1]
