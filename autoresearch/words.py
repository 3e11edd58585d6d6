"""How values and names are put in words: short, on one line, and names from outside in ASCII."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from autoresearch.values import Scalar


def json_text(value: object, limit: int = 60) -> str:
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


def scalar_text(value: Scalar) -> str:
    """A knob's value: floats to four significant digits, the rest as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def is_utf8(text: str) -> bool:
    """Whether a file can say it: a name on disk may hold any bytes, and those that are no UTF-8
    reach Python as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def toml_text(value: Any) -> str:
    """A number, string, boolean or list of them: as in JSON, whose strings differ from TOML's in
    what they escape."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def counted(number: int, noun: str, several: str = "") -> str:
    """``1 config``, ``2 configs``.

    :param several: the plural, where it is not made with an s.
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def changes_text(changes: Mapping[str, Scalar]) -> str:
    """``lr=0.003 n_layer=4``"""
    return " ".join(f"{name}={scalar_text(value)}" for name, value in changes.items())


def duration_text(seconds: float) -> str:
    """``19 ms``, ``8.1 s``, ``4 min``, ``2 h 05 min``."""
    if 0 < seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02d} min"
