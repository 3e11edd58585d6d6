"""Base of what its opener closes, by name or at the end of a ``with``."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self


class Closing(Protocol):
    """A context manager that closes itself at the end of its block."""

    def close(self) -> None:
        """Release what is held; a second call does nothing."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
