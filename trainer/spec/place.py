"""Define where a trial ran, in campaigns with several places."""

from __future__ import annotations

from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from autoresearch.values import Frozen, PlainText


class Place(Frozen):
    """A lane, and its machine and device if these are not the campaign's own."""

    lane: PlainText
    """``0``, ``1``, … on one machine."""
    node: PlainText | None = None
    """Machine name; None, and omitted from rows: the campaign's own."""
    device: PlainText | None = None
    """Kind of device, like ``NVIDIA GB10``; None, and omitted from rows: the campaign's own."""

    @model_serializer(mode="wrap")
    def _without_what_is_the_campaigns(
        self, write: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if value is not None}

    def __str__(self) -> str:
        return self.lane
