"""Pause Python's cyclic garbage collector where it only costs time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause cyclic garbage collection while many values without cycles are created. Scanning them
    repeatedly would take most of the time. Reference counting still frees values."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
