"""Python's search for cycles of garbage, and when it is wasted."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Many values that hold no cycles are about to be made: searching them for cycles again and
    again would take most of the time. Values are freed all the same, as soon as nobody has them."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
