"""Where a trial ran, where a campaign has several places."""

from __future__ import annotations

from autoresearch.values import Frozen, PlainText


class Place(Frozen):
    """A lane, and what it is on where that is not the machine of the campaign."""

    lane: PlainText
    """``0``, ``1``, … on one machine."""
    node: PlainText | None = None
    """The machine's name; None: the campaign's own."""
    device: PlainText | None = None
    """Its kind, as ``NVIDIA GB10``. None: the campaign's own."""

    def __str__(self) -> str:
        return self.lane
