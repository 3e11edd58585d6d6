"""Measurements kept as they come, a JSON line each: who stops goes on where he was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from autoresearch.values import Frozen

Kind = TypeVar("Kind", bound=Frozen)


class Store:
    """A file of measurements by what they are of."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._known: dict[str, object] = dict(json.loads(line) for line in lines)

    def get(self, kind: type[Kind], key: str, measure: Callable[[], Kind]) -> Kind:
        """The one of this name; measured and kept where there is none yet."""
        if key in self._known:
            return kind.model_validate(self._known[key])
        found = measure()
        self._known[key] = found.model_dump(mode="json")
        with self._path.open("a") as file:
            file.write(json.dumps([key, self._known[key]]) + "\n")
        return found
