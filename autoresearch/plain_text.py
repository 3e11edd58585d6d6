"""Text from outside as it may be shown. Imports nothing, so that the command can say an error
before anything else is loaded."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text without what a terminal or a page would obey or could not show.

    Each character that is not printable (of escape sequences, reversals of direction, line ends)
    becomes a space.
    """
    return "".join(c if c.isprintable() else " " for c in text)
