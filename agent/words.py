"""How values and names are spoken of in messages: short, on one line, safe to print anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches


def shown(value: object, limit: int = 60) -> str:
    """A JSON value as it is written, in ASCII, cut to ``limit`` characters."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = ascii(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`` (did you mean lr?)`` where something is near, else `` (choose from …)`` and all."""
    known = list(words)
    near = get_close_matches(word[:100], known, n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else f" (choose from {', '.join(known)})"
