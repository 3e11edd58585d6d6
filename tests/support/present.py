"""Values that must be there."""

from typing import TypeVar

T = TypeVar("T")


def known(found: T | None) -> T:
    """Return the value, which must not be None."""
    assert found is not None
    return found
