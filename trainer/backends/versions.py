"""Which torch, Megatron-Core and TransformerEngine are installed, and whether they go together.

They are released apart and break each other at run time, deep inside a first step. So they are
checked together, from the packages' metadata alone: nothing of them is imported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from autoresearch.errors import MachineryError

Release = tuple[int, int]
"""Major and minor; both packages break and mend things between minor versions."""

OLDEST_MEGATRON: Release = (0, 16)
WORKING_TRIO = "megatron-core 0.16.1 with transformer-engine 2.11"
"""Inside the range that megatron-core 0.16.1's own metadata names (at least 2.9, below 2.12); runs
on Python 3.11, which 0.17 and later do not."""


@dataclass(frozen=True, slots=True)
class Trio:
    """The installed versions as their packages state them; None where a package is absent."""

    torch: str | None
    megatron_core: str | None
    transformer_engine: str | None

    @classmethod
    def installed(cls) -> Trio:
        """Those of this Python."""
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
    """From the first, up to but without the second."""
    engine: tuple[Release, Release]
    why: str
    instead: str


BROKEN_PAIRS = (
    BrokenPair(
        megatron=((0, 17), (0, 18)),
        engine=((2, 5), (2, 10)),
        # 0.17 passes retain_pinned_cpu_buffers to every TransformerEngine from 2.5 on, whether it
        # offloads or not; 2.10 is the first to take it, and 0.18 asks for the version again.
        why="its get_cpu_offload_context() gets an argument it does not know",
        instead="megatron-core 0.17 with transformer-engine 2.14, or " + WORKING_TRIO,
    ),
)


def check_trio(trio: Trio) -> None:
    """Refuse what is missing or known not to work; a pair nobody has tried is let through.

    :raises MachineryError: naming versions that do.
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
    """``0.17.0rc0`` and ``2.14.0+cu13`` are (0, 17) and (2, 14)."""
    numbers = re.match(r"(\d+)\.(\d+)", text)
    if numbers is None:
        raise MachineryError(f"a version of {text!r} cannot be read; reinstall with {WORKING_TRIO}")
    return int(numbers[1]), int(numbers[2])


def _within(release: Release, bounds: tuple[Release, Release]) -> bool:
    return bounds[0] <= release < bounds[1]
