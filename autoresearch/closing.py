"""Provide context managers: values that close themselves, and a pause of garbage collection."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self


class Closing(Protocol):
    """A context manager that closes itself at the end of its block."""

    def close(self) -> None:
        """Release what is held; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


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
