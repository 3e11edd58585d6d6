"""Put values and names in words: short, on one line, and untrusted names in ASCII."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches, unified_diff
from hashlib import sha256
from itertools import islice
from typing import Any

from autoresearch.ideas import idea_name
from autoresearch.values import Scalar

MOST_CODE = 60
"""Most characters of a function to show in a line."""


def json_text(value: object, limit: int = 60) -> str:
    """Return a value as JSON in ASCII, cut to ``limit`` characters."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = ascii(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def first_fault(*faults: tuple[object, str]) -> str | None:
    """Return the clause of the first fault whose condition holds, or None."""
    return next((clause for holds, clause in faults if holds), None)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return `` (did you mean lr?)`` if a known word is similar, else `` (choose from …)`` with
    all."""
    known = list(words)
    near = get_close_matches(word[:100], known, n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else f" (choose from {', '.join(known)})"


def scalar_text(value: Scalar) -> str:
    """Return a knob's value as text: floats to four significant digits, others unchanged."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def is_utf8(text: str) -> bool:
    """Return whether text is valid UTF-8. A file name may hold other bytes, which reach Python as
    lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def toml_text(value: Any) -> str:
    """Return a number, string, boolean or list of them as TOML. It is the JSON text, except that
    TOML also escapes DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def counted(number: int, noun: str, several: str = "") -> str:
    """Return ``1 config``, ``2 configs``.

    :param several: the plural, if not made with an s.
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def changes_text(changes: Mapping[str, Scalar]) -> str:
    """Return ``lr=0.003 n_layer=4 code.activation={F.relu(x).square()}``."""
    shown = {name: brief(name, value) for name, value in changes.items()}
    return " ".join(f"{name}={scalar_text(value)}" for name, value in shown.items())


CODE = "code."
"""Prefix of the names of code knobs."""


def brief(name: str, value: Scalar) -> Scalar:
    """Return a knob's value; code as its only statement if that is short, else as its name if it is
    a published idea, else as its length and a part of its hash."""
    if not name.startswith(CODE) or not isinstance(value, str):
        return value
    lines = value.splitlines()
    body = lines[1:] if value.startswith("def ") else lines
    if not lines:
        return "{built in}"
    if len(body) == 1 and len(body[0].strip()) <= MOST_CODE:
        return f"{{{body[0].strip().removeprefix('return ')}}}"
    if name_known := idea_name(value):
        return f"{{{name_known}}}"
    return f"{{{len(lines)} lines, {sha256(value.encode()).hexdigest()[:6]}}}"


def code_diff(before: str, after: str) -> list[str]:
    """Return a small diff of two functions: lines that begin with ``-``, ``+`` or a space."""
    lines = unified_diff(before.splitlines(), after.splitlines(), n=2, lineterm="")
    return [line for line in islice(lines, 2, None) if not line.startswith("@@")]


def duration_text(seconds: float) -> str:
    """Return ``19 ms``, ``8.1 s``, ``4 min``, ``2 h 05 min``."""
    if 0 < seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02d} min"


def rate_text(number: float) -> str:
    """Return ``1,650``, ``98``, ``1.2``: whole from ten on, else to two digits, and no exponent."""
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.1f}"


def millions_text(number: int) -> str:
    """Return ``2.10 M``, ``355 M``, ``6,740 M``: at least three digits."""
    amount = number / 1e6
    return f"{amount:#.3g} M" if amount < 99.5 else f"{amount:,.0f} M"


def timestamp() -> str:
    """Return the time as ISO 8601, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
