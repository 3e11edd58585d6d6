"""Where a trial ran, where a campaign has several places."""

from __future__ import annotations

from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from autoresearch.values import Frozen, PlainText


class Place(Frozen):
    """A lane, and what it is on where that is not the machine of the campaign."""

    lane: PlainText
    """``0``, ``1``, … on one machine."""
    node: PlainText | None = None
    """The machine's name; None, and left out of rows: the campaign's own."""
    device: PlainText | None = None
    """Its kind, as ``NVIDIA GB10``; None, and left out of rows: the campaign's own."""

    @model_serializer(mode="wrap")
    def _without_what_is_the_campaigns(
        self, write: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if value is not None}

    def __str__(self) -> str:
        return self.lane
